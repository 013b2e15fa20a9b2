// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Why a group was aborted. The same value reaches every rank: it travels in abort packets and in
/// completions, so it is plain data of fixed size. Any thread; describe() allocates its string.
#pragma once

#include <cstdint>
#include <string>

namespace gradwire {

/// The values go on the wire: never renumber.
enum class AbortCode : std::uint8_t {
  kNone = 0,
  kSilence = 1,        ///< `culprit_rank` was not heard for `duration_ns`
  kMismatch = 2,       ///< two ranks or members called different things; `detail` has both values.
                       ///< `culprit_rank` is the upstream one: neither is known to be wrong
  kClientDied = 3,     ///< a member's process of `culprit_rank` died
  kClientAbort = 4,    ///< a member of `culprit_rank` asked for it
  kDaemonStopped = 5,  ///< the daemon of `culprit_rank` was told to stop
  kPeerLeft = 6,       ///< `culprit_rank` left while ops were unfinished
  kReduceFailed = 7,   ///< a batch failed on `culprit_rank`
  kFormation = 8,      ///< the group could not be formed in time or its ranks do not fit together
  kProtocol = 9,       ///< a neighbor broke the protocol in a way that cannot be dropped
  kStuck = 10,         ///< nothing moved for `duration_ns` though every rank has posted the op: a
                       ///< bug. `culprit_rank` is who found it; `detail` is that rank's state
};
inline constexpr AbortCode kLastAbortCode = AbortCode::kStuck;

struct AbortReason {
  static constexpr std::size_t kDetailBytes = 160;

  AbortCode code = AbortCode::kNone;
  std::uint16_t culprit_rank = 0;   ///< whose fault
  std::uint16_t reporter_rank = 0;  ///< who saw it first
  std::uint64_t op_seq = 0;         ///< first op affected; 0 = none was in flight
  std::uint64_t duration_ns = 0;    ///< how long the wait was; 0 = nobody waited
  char detail[kDetailBytes] = {};   ///< UTF-8, NUL-terminated, may be empty

  [[nodiscard]] bool is_set() const noexcept { return code != AbortCode::kNone; }
  /// Copies at most kDetailBytes - 1 bytes of `text`.
  void set_detail(const char* text) noexcept;
};

/// One sentence for people: names rank, op and duration if they apply.
[[nodiscard]] std::string describe(const AbortReason& reason);

}  // namespace gradwire
