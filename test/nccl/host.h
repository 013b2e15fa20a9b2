// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What all communicators of a rank share. Any thread; nothing here allocates.
#pragma once

#include <atomic>
#include <cstdint>

#include "nccl/exchange.h"
#include "nccl/library.h"
#include "nccl/plan.h"

namespace gradwire::nccl {

struct Host {
  const Options& options;
  const Plan& plan;
  const int rank;
  Library& library;
  Exchange& exchange;
  std::atomic<std::uint64_t> messages{0};     ///< done, of all communicators
  std::atomic<std::uint64_t> all_reduces{0};  ///< likewise

  /// Whether this rank ends without a close.
  [[nodiscard]] bool exits() const { return plan.exits[static_cast<std::size_t>(rank)]; }
};

}  // namespace gradwire::nccl
