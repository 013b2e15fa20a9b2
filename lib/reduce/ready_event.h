// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// An event that a client records on a GPU stream if its input is still being computed. The daemon
/// checks it before any shard reads that input. The control thread makes and destroys it; the
/// command lane asks for its state.
#pragma once

#include <cstdint>

namespace gradwire::reduce {

class ReadyEvent {
 public:
  enum class State : std::uint8_t { kPending, kReady, kFailed };

  virtual ~ReadyEvent() = default;
  /// The state of the event as the client recorded it last. Neither waits nor allocates.
  [[nodiscard]] virtual State state() noexcept = 0;
};

}  // namespace gradwire::reduce
