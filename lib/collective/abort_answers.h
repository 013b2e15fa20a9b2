// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// After an abort: ranks that are no neighbours on the ring and still send to this one, because
/// they have not heard of it. Each is told, but not more often than every hello interval. One lane
/// owns it; it allocates at construction only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/abort_reason.h"
#include "collective/fixed_queue.h"
#include "collective/peer_ends.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"

namespace gradwire::collective {

class AbortAnswers {
 public:
  AbortAnswers(const ShardConfig& config, const PeerEnds& ends)
      : config_(config), ends_(ends), peers_(config.nranks), waiting_(config.nranks) {}

  /// A packet came from that rank.
  void answer(std::uint16_t rank, TimeNs now) noexcept {
    Peer& peer = peers_[rank];
    if (peer.waits || now < peer.next) return;
    peer.next = now + config_.timeouts.hello_interval_ns;
    peer.waits = waiting_.push(rank);
  }
  /// @return whether something was sent.
  bool send(const AbortReason& reason, Outbox& out) noexcept {
    bool worked = false;
    for (std::uint32_t sent = 0; sent < kDirectBurst && !waiting_.empty(); ++sent) {
      LinkEnd& end = ends_.of(waiting_.front());
      const bool told =
          end.send(config_.control_pool, end.side(out), [&](std::span<std::byte> room) {
            return wire::encode_abort(room, end.header(wire::PacketType::kAbort), reason);
          });
      if (!told) break;
      peers_[waiting_.front()].waits = false;
      waiting_.pop();
      worked = true;
    }
    return worked;
  }

 private:
  struct Peer {
    TimeNs next = 0;  ///< it may be told again
    bool waits = false;
  };
  const ShardConfig& config_;
  const PeerEnds& ends_;
  std::vector<Peer> peers_;
  FixedQueue<std::uint16_t> waiting_;
};

}  // namespace gradwire::collective
