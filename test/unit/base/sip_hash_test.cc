// SPDX-License-Identifier: BSD-3-Clause
#include "base/sip_hash.h"

#include <array>
#include <catch2/catch.hpp>

namespace gradwire {
namespace {

/// The paper's key: bytes 0 to 15.
constexpr SipHashKey kKey = {0x0706050403020100, 0x0f0e0d0c0b0a0908};

std::uint64_t hash_of_first(std::size_t count) {
  std::array<std::byte, 64> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  return sip_hash(kKey, std::span(bytes).first(count));
}

}  // namespace

TEST_CASE("SipHash-2-4 gives the published values") {
  // Appendix A of the paper: 15 bytes; the others from its authors' list of vectors.
  CHECK(hash_of_first(15) == 0xa129ca6149be45e5);
  CHECK(hash_of_first(0) == 0x726fdb47dd0e0e31);
  CHECK(hash_of_first(1) == 0x74f839c593dc67fd);
  CHECK(hash_of_first(8) == 0x93f5f5799a932462);
}

TEST_CASE("length and key matter") {
  const std::array<std::byte, 16> zeros{};
  CHECK(sip_hash(kKey, std::span(zeros).first(7)) != sip_hash(kKey, std::span(zeros).first(8)));
  CHECK(sip_hash(kKey, zeros) != sip_hash({1, 2}, zeros));
}

}  // namespace gradwire
