// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The seed of a test that draws its inputs. It is the same in each run, so that what passed once
/// does not fail by chance later; scripts/flaky.sh sets others. Any thread; nothing here allocates.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace gradwire {

/// @return $GRADWIRE_TEST_SEED, a decimal number, or 1 without it. A test shows it if it fails:
/// INFO("GRADWIRE_TEST_SEED=" << seed).
inline std::uint64_t test_seed() {
  const char* text = std::getenv("GRADWIRE_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

}  // namespace gradwire
