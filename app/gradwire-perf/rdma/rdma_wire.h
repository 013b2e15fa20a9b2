// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the ring of transport rdma needs of a network: writes into the memory of a neighbor that
/// knows of each. Apart from libibverbs, so that tests can carry the bytes by themselves. One
/// thread; nothing but its making allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace gradwire::perf {

/// A connection of this rank's. With two ranks there is only one, which is both.
enum class RdmaEnd : std::uint8_t { kDownstream, kUpstream };
inline constexpr std::size_t kRdmaEnds = 2;

/// An RDMA write with immediate.
struct RdmaWrite {
  std::span<const std::byte> bytes;  ///< not to change until it has completed, unless inline
  std::uint64_t offset = 0;          ///< in the neighbor's memory
  std::uint32_t immediate = 0;       ///< for the neighbor
};

struct RdmaEvent {
  enum class Kind : std::uint8_t {
    kCompleted,  ///< a write or a word of this rank's: its memory is free; in order for each end
    kArrived,    ///< the neighbor's next write, which lies in this rank's memory
    kTold,       ///< the neighbor's next word
  };
  Kind kind = Kind::kCompleted;
  RdmaEnd end = RdmaEnd::kDownstream;
  std::uint32_t bytes = 0;      ///< of kArrived
  std::uint32_t immediate = 0;  ///< of kArrived and kTold
};

class RdmaWire {
 public:
  virtual ~RdmaWire() = default;

  /// Posts a write. The neighbor must have room for it: who calls counts that.
  [[nodiscard]] virtual Result<void> write(RdmaEnd end, const RdmaWrite& write) = 0;
  /// Posts a message that is nothing but a word.
  [[nodiscard]] virtual Result<void> tell(RdmaEnd end, std::uint32_t word) = 0;
  /// Writes of up to so many bytes are copied when they are posted.
  [[nodiscard]] virtual std::size_t inline_bytes() const noexcept = 0;

  /// What has happened, without waiting. @return how many of `events` were filled;
  /// kUnavailable with the rank that does not answer any more.
  [[nodiscard]] virtual Result<std::size_t> poll(std::span<RdmaEvent> events) = 0;
  /// Gives the core away until poll() has something, a neighbor is gone or kSleepMs have passed.
  virtual void sleep() = 0;
  static constexpr int kSleepMs = 100;
  /// @return kUnavailable with the rank that has ended. A system call: for times without progress.
  [[nodiscard]] virtual Result<void> look_after_neighbors() = 0;
};

}  // namespace gradwire::perf
