// SPDX-License-Identifier: BSD-3-Clause
#include "collective/direct/direct_scratch.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "collective/shapes/shape_direct.h"
#include "collective/shard_config.h"

namespace gradwire::collective {
namespace {

[[maybe_unused]] std::uint64_t resident_bytes() {
  std::uint64_t all = 0;
  std::uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("scratch memory for many ranks takes memory when it is used, and not before") {
#ifdef __SANITIZE_ADDRESS__
  WARN("its memory is the heap's under ASan");
#else
  constexpr std::uint16_t kRanks = 1024;
  const std::uint64_t most = direct::scratch_bytes(64 << 10, kTwoStepBytesMax, 256 << 10, false);
  const std::uint64_t before = resident_bytes();
  const DirectScratch scratch(kRanks, most, nullptr);
  CHECK(2 * most > 32u << 20);
  CHECK(resident_bytes() - before < 4u << 20);
  CHECK(scratch.has_room(most));
  CHECK(scratch.touched_bytes() == 0);
#endif
}

}  // namespace gradwire::collective
