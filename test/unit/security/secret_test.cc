// SPDX-License-Identifier: BSD-3-Clause
#include "security/secret.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>

#include "hex.h"
#include "security/key_schedule.h"

namespace gradwire::security {
namespace {

struct Kept : InSecretMemory {
  std::array<std::byte, 100> bytes{};
};

/// The flags of the mapping that has this address, from /proc/self/smaps.
std::string flags_of(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  bool within = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long first = 0;
    unsigned long last = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &last) == 2) {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      within = first <= at && at < last;
    }
    if (within && line.rfind("VmFlags:", 0) == 0) return line + " ";
  }
  return "";
}

}  // namespace

TEST_CASE("secret memory is left out of core dumps, and out of children") {
  const auto kept = std::make_unique<Kept>();
  const std::string flags = flags_of(kept.get());
  INFO(flags);
  CHECK(flags.find(" dd ") != std::string::npos);
  CHECK(flags.find(" wf ") != std::string::npos);
  CHECK(flags_of(&flags).find(" dd ") == std::string::npos);
  const auto chain = std::make_unique<KeyChain>(Secret32(), LinkContext{}, Sha256{});
  CHECK(flags_of(chain.get()).find(" dd ") != std::string::npos);

  kept->bytes.fill(std::byte{0x5a});
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool wiped = std::all_of(kept->bytes.begin(), kept->bytes.end(),
                                   [](std::byte b) { return b == std::byte{0}; });
    _exit(wiped ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(kept->bytes[99] == std::byte{0x5a});
}

TEST_CASE("secret memory is cleared before it is handed out again") {
  void* first = allocate_secret(100);
  REQUIRE(first != nullptr);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % 64 == 0);
  std::memset(first, 0xa5, 100);
  free_secret(first, 100);
  void* again = allocate_secret(90);  // of the same size, rounded
  REQUIRE(again == first);
  const Bytes zeros(100);
  CHECK(std::memcmp(again, zeros.data(), 100) == 0);
  free_secret(again, 90);
  void* large = allocate_secret(200'000);
  REQUIRE(large != nullptr);
  std::memset(large, 1, 200'000);
  free_secret(large, 200'000);
}

TEST_CASE("secret bytes clear themselves") {
  alignas(Secret32) std::array<std::byte, sizeof(Secret32)> place;
  auto* secret = new (place.data()) Secret32(array_of<32>(Bytes(32, std::byte{7})));
  CHECK(place[31] == std::byte{7});
  secret->~Secret32();
  CHECK(std::all_of(place.begin(), place.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_CASE("comparing in constant time compares") {
  const Bytes a = from_hex("000102");
  CHECK(equal_in_constant_time(a, from_hex("000102")));
  CHECK_FALSE(equal_in_constant_time(a, from_hex("000103")));
  CHECK_FALSE(equal_in_constant_time(a, from_hex("800102")));
  CHECK_FALSE(equal_in_constant_time(a, from_hex("0001")));
  CHECK(equal_in_constant_time({}, {}));
}

}  // namespace gradwire::security
