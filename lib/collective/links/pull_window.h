// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How many chunks a lane of a group may have pulled that have not come, whatever they are of: the
/// window of the group's congestion controller, which sits at the receiver here, where senders
/// meet. OffRing has one, and lends it to all that pull. One lane owns it; it allocates at
/// construction only; time is a parameter.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/require.h"
#include "collective/shard_config.h"
#include "transport/congestion.h"

namespace gradwire::collective {

/// A pull is for so many chunks at least, if they can be had, so that it is worth a packet.
inline constexpr std::uint32_t kPullChunks = 8;
/// Chunks that were pulled later and came: what came not is lost.
inline constexpr std::uint32_t kOvertaken = 3;
/// The first time that nothing new comes for a PTO, and every so often from there, all that was
/// pulled is pulled again; else its oldest chunk alone. A PTO has a bound, and if what was pulled
/// only takes longer to come, all of it would be sent many times and fill the port before it.
inline constexpr std::uint32_t kTriesForAll = 4;

/// Who pulls: transfers, or ops by tiles parts and results.
enum class Puller : std::uint8_t { kTransfers, kParts, kResults };

class PullWindow {
 public:
  explicit PullWindow(const ShardConfig& config)
      : packet_bytes_(full_packet_wire_bytes(config)),
        controller_(transport::make_controller({.kind = config.congestion,
                                                .max_window_bytes = window_bytes(config),
                                                .packet_bytes = packet_bytes_,
                                                .swift_target_ns = config.swift_target_ns})) {}

  /// Chunks that may be pulled now. Who has none on their way may pull one, whatever the others
  /// have: what they wait for may wait for that.
  [[nodiscard]] std::uint64_t room(Puller who) const noexcept {
    const std::uint64_t most = controller_->window_bytes() / packet_bytes_;
    const std::uint64_t least = of_[index(who)] == 0 ? 1 : 0;
    return std::max(most > chunks_ ? most - chunks_ : 0, least);
  }
  /// Whether chunks of it are on their way.
  [[nodiscard]] bool has(Puller who) const noexcept { return of_[index(who)] != 0; }
  /// Room that is worth waiting for, if chunks are on their way: a pull for each chunk would be as
  /// many packets as chunks.
  [[nodiscard]] std::uint64_t worth_of_room() const noexcept {
    return std::clamp<std::uint64_t>(controller_->window_bytes() / packet_bytes_ / 8, 1,
                                     kPullChunks);
  }
  void pulled(Puller who, TimeNs now, std::uint64_t chunks) noexcept {
    require(chunks > 0, "a pull is of a chunk at least");
    chunks_ += chunks;
    of_[index(who)] += chunks;
    controller_->on_packet_sent(now, static_cast<std::uint32_t>(chunks) * packet_bytes_);
  }
  /// @param delay_ns  from its pull to its arrival; 0: not known.
  void came(Puller who, TimeNs now, bool ecn_ce, TimeNs delay_ns) noexcept {
    forget(who, 1);
    controller_->on_ack(now, packet_bytes_, ecn_ce ? 1 : 0, delay_ns);
  }
  /// They are pulled again.
  void lost(TimeNs now, std::uint64_t chunks) noexcept {
    controller_->on_loss(now, chunks * packet_bytes_);
  }
  /// Nobody waits for them any more.
  void forget(Puller who, std::uint64_t chunks) noexcept {
    require(of_[index(who)] >= chunks, "chunks that come were pulled");
    of_[index(who)] -= chunks;
    chunks_ -= chunks;
  }

 private:
  [[nodiscard]] static constexpr std::size_t index(Puller who) noexcept {
    return static_cast<std::size_t>(who);
  }

  std::uint32_t packet_bytes_;
  std::unique_ptr<transport::CongestionController> controller_;
  std::uint64_t chunks_ = 0;
  std::array<std::uint64_t, 3> of_{};  ///< of these, by who pulled them
};

}  // namespace gradwire::collective
