// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a client marks where its input is still being computed, and the daemon looks at before any
/// shard reads that input. The control thread makes and destroys it; the command lane asks.
#pragma once

#include <cstdint>

namespace gradwire::reduce {

class ReadyEvent {
 public:
  enum class State : std::uint8_t { kPending, kReady, kFailed };

  virtual ~ReadyEvent() = default;
  /// Of the mark that the client set last. Neither waits nor allocates.
  [[nodiscard]] virtual State state() noexcept = 0;
};

}  // namespace gradwire::reduce
