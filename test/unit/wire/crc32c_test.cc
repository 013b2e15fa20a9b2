// SPDX-License-Identifier: BSD-3-Clause
#include <isa-l/crc.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "support/seed.h"
#include "wire/crc32c_wide.h"
#include "wire/packet.h"

using namespace gradwire::wire;

namespace {

std::uint32_t crc_of(const std::vector<int>& values) {
  std::vector<std::byte> bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return crc32c(bytes);
}

}  // namespace

// RFC 3720 appendix B.4 lists the CRC's bytes as they are sent, least significant first.
TEST_CASE("CRC32C gives the values of RFC 3720") {
  std::vector<int> rising, falling;
  for (int i = 0; i < 32; ++i) rising.push_back(i);
  for (int i = 31; i >= 0; --i) falling.push_back(i);
  CHECK(crc_of(std::vector<int>(32, 0)) == 0x8a9136aa);
  CHECK(crc_of(std::vector<int>(32, 0xff)) == 0x62a8ab43);
  CHECK(crc_of(rising) == 0x46dd794e);
  CHECK(crc_of(falling) == 0x113fdb5c);
  CHECK(crc_of({'1', '2', '3', '4', '5', '6', '7', '8', '9'}) == 0xe3069283);
  CHECK(crc_of({}) == 0);
}

TEST_CASE("CRC32C of pieces is that of the whole, however it is cut and aligned") {
  std::vector<std::byte> bytes;
  for (int i = 0; i < 300; ++i) bytes.push_back(static_cast<std::byte>(i * 37 + i / 7));
  const std::span<const std::byte> all(bytes);
  for (std::size_t start = 0; start < 8; ++start) {
    const auto whole = all.subspan(start);
    for (std::size_t cut = 0; cut <= whole.size(); ++cut)
      REQUIRE(crc32c_extend(crc32c(whole.first(cut)), whole.subspan(cut)) == crc32c(whole));
  }
}

TEST_CASE("CRC32C by multiplication is ISA-L's, at every length, start and alignment") {
  const WideCrc width = GENERATE(WideCrc::k256, WideCrc::k512);
  if (width > wide_crc()) {
    WARN("this CPU does not multiply so many bits: " << (width == WideCrc::k256 ? 256 : 512)
                                                     << " are not compared");
    return;
  }
  const std::uint64_t seed = gradwire::test_seed();
  INFO("GRADWIRE_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(40'000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const auto check = [&](std::size_t start, std::size_t length) {
    const auto state = static_cast<std::uint32_t>(random());
    std::span<const std::byte> rest = std::span(bytes).subspan(start, length);
    auto* data = reinterpret_cast<unsigned char*>(bytes.data() + start);
    // Prefetching an address that is no memory changes nothing.
    const auto* const ahead = reinterpret_cast<const std::byte*>(random() % 2 * 4'096);
    const std::uint32_t ours = crc32c_wide(width, state, rest, ahead);
    const std::size_t taken = length - rest.size();
    INFO("start " << start << " length " << length << " taken " << taken);
    REQUIRE(rest.size() < 1'056);
    REQUIRE(ours == crc32_iscsi(data, static_cast<int>(taken), state));
    // And the whole CRC, as packets have it.
    REQUIRE(crc32c_extend(~state, std::span(bytes).subspan(start, length)) ==
            ~crc32_iscsi(data, static_cast<int>(length), state));
  };
  for (std::size_t length = 0; length < 2'400; ++length) check(length % 67, length);
  for (int i = 0; i < 1'000; ++i) {
    const std::size_t start = random() % 1'000;
    check(start, random() % (bytes.size() - start));
  }
}
