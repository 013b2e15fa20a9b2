// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What gw_counters tells. Plain data; the client's lock guards it.
#pragma once

#include <cstdint>

namespace gradwire::client {

struct Counters {
  std::uint64_t ops_posted = 0;
  std::uint64_t ops_done = 0;
  std::uint64_t ops_failed = 0;
  std::uint64_t copies = 0;
  std::uint64_t copied_bytes = 0;
  std::uint64_t sleeps = 0;
  std::uint64_t doorbells = 0;
};

}  // namespace gradwire::client
