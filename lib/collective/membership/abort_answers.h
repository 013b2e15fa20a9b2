// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// After an abort: ranks that are no neighbors on the ring. Those that still send to this one have
/// not heard of it: each is told, but not more often than every hello interval. If the
/// ring is broken here, all are told with the neighbors, a few times. One lane owns it; it
/// allocates at construction only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/abort_reason.h"
#include "collective/fixed_queue.h"
#include "collective/links/peer_ends.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

class AbortAnswers {
 public:
  AbortAnswers(const ShardConfig& config, const PeerEnds& ends)
      : config_(config), ends_(ends), peers_(ends.ranks()), waiting_(ends.ranks()) {
    unreached_.reserve(ends.ranks());
  }

  /// A packet came from that rank.
  void answer(std::uint16_t rank, TimeNs now) noexcept {
    Peer& peer = peers_[rank];
    if (peer.waits || now < peer.next) return;
    peer.next = now + config_.timeouts.hello_interval_ns;
    peer.waits = waiting_.push(rank);
  }
  /// The ring may not reach it. Called once for a rank.
  void tell(std::uint16_t rank) noexcept { unreached_.push_back(rank); }
  [[nodiscard]] bool idle() const noexcept { return waiting_.empty(); }
  /// @param round  how often the neighbors were told.
  /// @return whether something was sent.
  bool send(const AbortReason& reason, std::uint32_t round, Outbox& out) noexcept {
    bool worked = false;
    if (round > rounds_ && round <= kRounds) {
      for (const std::uint16_t rank : unreached_) {
        if (!peers_[rank].waits) peers_[rank].waits = waiting_.push(rank);
      }
    }
    rounds_ = round;
    for (std::uint32_t sent = 0; sent < kDirectBurst && !waiting_.empty(); ++sent) {
      LinkEnd& end = ends_.of(waiting_.front());
      // From another source port each time: the way that it had may be why it asks.
      const PathIndex path = end.back();
      const std::uint8_t source = end.source_after(path, peers_[waiting_.front()].told);
      const bool told = end.send_from(
          path, source, config_.control_pool, end.any_side(out), [&](std::span<std::byte> room) {
            return wire::encode_abort(room, end.header(wire::PacketType::kAbort), reason);
          });
      if (!told) break;
      ++peers_[waiting_.front()].told;
      peers_[waiting_.front()].waits = false;
      waiting_.pop();
      worked = true;
    }
    return worked;
  }

 private:
  static constexpr std::uint32_t kRounds = 5;

  struct Peer {
    TimeNs next = 0;         ///< it may be told again
    std::uint32_t told = 0;  ///< so often it was
    bool waits = false;
  };
  const ShardConfig& config_;
  const PeerEnds& ends_;
  std::vector<Peer> peers_;
  FixedQueue<std::uint16_t> waiting_;
  std::vector<std::uint16_t> unreached_;
  std::uint32_t rounds_ = 0;
};

}  // namespace gradwire::collective
