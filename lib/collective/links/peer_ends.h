// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Every other rank of the group, for what goes between any two ranks: its end of the link, which
/// is the ring's if it is a neighbor there, so that a link has one series of packet numbers. One
/// lane owns it; it allocates at construction only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "collective/links/link.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "wire/packet.h"

namespace gradwire::collective {

class PeerEnds {
 public:
  /// Empty if packets go between neighbors alone: needs_all_ranks().
  /// @param config  with the addresses of all ranks. The links outlive this, and end together with
  ///                it; the counters outlive both.
  PeerEnds(const ShardConfig& config, const Links& links, ShardCounters& counters);
  // Ends refer to its tally.
  PeerEnds(const PeerEnds&) = delete;
  PeerEnds& operator=(const PeerEnds&) = delete;

  /// How many ranks are sent to by another path than the first, apart from the ring's data.
  [[nodiscard]] std::uint32_t on_other_path() const noexcept { return tally_.away; }
  /// In each round of the lane.
  void polled(TimeNs now) noexcept { tally_.polled(now, ping_interval_ns_); }
  /// The lane polled at that time, though nobody here was called: it did not stand still.
  void rested_until(TimeNs polled_at) noexcept {
    tally_.polled_at = std::max(tally_.polled_at, polled_at);
  }
  [[nodiscard]] LinkEnd& of(std::uint16_t rank) const noexcept { return *peers_[rank].end; }
  /// Ranks of this group, or 0: then it is empty.
  [[nodiscard]] std::uint16_t ranks() const noexcept {
    return static_cast<std::uint16_t>(peers_.size());
  }
  /// Whether anything goes there: not to this rank, nor from one rank without members to another.
  [[nodiscard]] bool has(std::uint16_t rank) const noexcept {
    return rank < peers_.size() && peers_[rank].end != nullptr;
  }
  /// The rank's address by the path that is taken now.
  [[nodiscard]] const wire::IpAddress& sends_to(std::uint16_t rank) const noexcept {
    return of(rank).ip_of(of(rank).path());
  }
  /// A packet of any kind came from there that the ring does not acknowledge. Of a neighbor from
  /// which ring data comes its number is no hole in the ring's row.
  void note(std::uint16_t rank, std::uint64_t packet_number) const noexcept {
    if (peers_[rank].ring_numbers != nullptr) peers_[rank].ring_numbers->note(packet_number);
  }
  /// Whether a packet is of the rank that it names: Drop::kNone, or why not.
  /// @param[out] path  by which it came
  [[nodiscard]] wire::Drop source_of(const wire::CommonHeader& header,
                                     const wire::IpAddress& source, PathIndex& path) const noexcept;

 private:
  struct Peer {
    std::unique_ptr<LinkEnd> own_end;  ///< unless it is a neighbor on the ring
    LinkEnd* end = nullptr;
    transport::Receiver* ring_numbers = nullptr;
  };
  TimeNs ping_interval_ns_;
  PathTally tally_;
  std::vector<Peer> peers_;  ///< [all_ranks()], of this rank nothing; or empty
};

}  // namespace gradwire::collective
