// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a lane counts: of each group (ShardCounts), of itself (LaneCounts), and of its clients'
/// commands (CommandCounts). Each counter is a plain member, so that counting is one addition. A
/// row of status/counter_table.h gives it its name, and its metric; a member without one does not
/// compile there. A lane owns its counts and others read them; nothing here allocates.
#pragma once

#include <cstdint>

namespace gradwire {

/// Written by the lane that owns the shard, read by others for display (relaxed, each on its own).
struct ShardCounts {
  std::uint64_t data_packets_sent = 0;
  std::uint64_t data_bytes_sent = 0;        ///< payload
  std::uint64_t data_packets_received = 0;  ///< accepted, duplicates not counted
  std::uint64_t data_bytes_received = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t probes = 0;
  std::uint64_t acks_sent = 0;
  std::uint64_t acks_received = 0;
  std::uint64_t pings_sent = 0;
  std::uint64_t spills = 0;         ///< chunks finished to memory, to be sent from there
  std::uint64_t early_packets = 0;  ///< came before their op was posted here
  std::uint64_t copies = 0;         ///< payloads copied because an mbuf was shared
  std::uint64_t ops_done = 0;
  std::uint64_t ops_direct = 0;    ///< of these, direct ones that have chunks on this lane
  std::uint64_t ops_two_step = 0;  ///< likewise in two steps
  std::uint64_t ops_gathered = 0;  ///< likewise in log2(nranks) steps
  // From any rank, so they say nothing of the way to a neighbor.
  std::uint64_t contributions_received = 0;  ///< data packets of direct ops, as above
  std::uint64_t receipts_received = 0;       ///< and inquiries
  std::uint64_t ecn_ce_received = 0;         ///< data packets that came with Congestion Experienced
  /// Time for which an op was unfinished and nothing arrived and nothing was acknowledged for
  /// collective::kStallNs: with something left to send, or unacknowledged, it is the downstream
  /// rank's; else the upstream rank's.
  std::uint64_t stalled_on_downstream_ns = 0;
  std::uint64_t stalled_on_upstream_ns = 0;
  std::uint64_t path_moves = 0;              ///< a link of the ring took another path
  std::uint64_t peer_path_moves = 0;         ///< what goes to another rank off the ring did
  std::uint64_t source_port_moves = 0;       ///< a link of the ring took another source port
  std::uint64_t peer_source_port_moves = 0;  ///< what goes to another rank off the ring did
  // Of transfers between processes.
  std::uint64_t pieces_sent = 0;      ///< those that are sent again too
  std::uint64_t pieces_received = 0;  ///< duplicates not counted
  std::uint64_t piece_bytes_received = 0;
  std::uint64_t pieces_pulled_again = 0;  ///< chunks
  std::uint64_t early_pieces = 0;         ///< came before their receive was posted
  std::uint64_t transfer_asks = 0;        ///< offers and pulls that want an answer
  std::uint64_t transfer_ends_done = 0;
  // Of ops by tiles.
  std::uint64_t ops_tiles = 0;             ///< of ops_done
  std::uint64_t ops_bf16 = 0;              ///< of ops_tiles: their elements travelled so
  std::uint64_t ops_int8 = 0;              ///< likewise
  std::uint64_t tile_pieces_sent = 0;      ///< those that are sent again too
  std::uint64_t tile_pieces_received = 0;  ///< duplicates not counted
  std::uint64_t tile_bytes_received = 0;
  std::uint64_t tile_pieces_pulled_again = 0;  ///< chunks
  std::uint64_t tile_words_sent = 0;           ///< pulls and calls
  std::uint64_t tile_asks = 0;                 ///< of these, that want an answer
};

/// With the functions of base/counter.h.
struct LaneCounts {
  std::uint64_t rounds = 0;
  std::uint64_t busy_rounds = 0;  ///< in which there was something to do
  std::uint64_t rx_packets = 0;
  std::uint64_t rx_bytes = 0;  ///< of frames, from the Ethernet header on
  std::uint64_t tx_packets = 0;
  std::uint64_t tx_bytes = 0;
  /// Frames that had to wait for a later round because the port was full.
  std::uint64_t tx_refused = 0;
  std::uint64_t tx_dropped = 0;  ///< frames freed because the port had taken none for long
  std::uint64_t sleeps = 0;
  std::uint64_t sleep_ns = 0;
  std::uint64_t echo_replies = 0;
  /// Pings not answered because of the limit (port/reply_limit.h).
  std::uint64_t replies_withheld = 0;
  std::uint64_t neighbor_frames = 0;  ///< ARP or discovery, passed to the control thread
  /// The same, dropped because of its rate, or because there was no room.
  std::uint64_t neighbor_drops = 0;
  std::uint64_t ops_done = 0;  ///< shares of ops finished on this lane
  std::uint64_t aborts = 0;    ///< groups that aborted here
  std::uint64_t stuck = 0;     ///< of `aborts`, those with AbortCode::kStuck
  std::uint64_t busy_ns = 0;   ///< in rounds that did something
  std::uint64_t idle_ns = 0;   ///< in the other rounds, and spinning or sleeping after them
  // Lane 0 alone counts these, of whole ops.
  std::uint64_t op_bytes = 0;  ///< count x element size of ops that are done
  /// The same x 2(n-1)/n of an all-reduce, (n-1)/n of an all-gather and a reduce-scatter, else x 1:
  /// their rate is nccl-tests' busbw.
  std::uint64_t bus_bytes = 0;
};

/// Of the command lane alone, with the functions of base/counter.h.
struct CommandCounts {
  std::uint64_t commands = 0;      ///< taken from clients
  std::uint64_t bad_commands = 0;  ///< answered with an error at once
};

}  // namespace gradwire
