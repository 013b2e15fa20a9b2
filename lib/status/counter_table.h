// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The counters of base/counts.h, each once: its name and, if it is worth one, its metric. The
/// status and its JSON, `gradwire counters` and DPDK's telemetry show each of them by its name;
/// lib/metrics exports those that have a metric. A counter without a row does not compile, and
/// test/words.py compares name and member. Constants; any thread; nothing here allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/counts.h"

namespace gradwire::status {

/// A counter for Prometheus. Its name follows the rules there: base units, and `_total` at the end.
struct CounterMetric {
  /// nullptr: there is none, since the rate of another metric says the same.
  const char* name = nullptr;
  const char* help = nullptr;
  // A label besides the lane's, if several counters are one metric.
  const char* label = nullptr;
  const char* label_value = nullptr;
  bool lane_0_alone = false;  ///< counts it, for the daemon: it has no label of a lane
};

/// If `name` ends in _ns, the metric is in seconds.
template <class Counts>
struct Counter {
  const char* name;
  std::uint64_t Counts::*member;
  CounterMetric metric{};
};

inline constexpr const char* kStallHelp =
    "Time with an unfinished op during which nothing arrived and nothing was acknowledged.";

inline constexpr const char* kFormatsHelp =
    "Ops whose elements travelled in a wire format, by lane and format.";

inline constexpr auto kShardCounters = std::to_array<Counter<ShardCounts>>({
    {"data_packets_sent",
     &ShardCounts::data_packets_sent,
     {"gradwire_data_packets_sent_total", "Data packets sent, including retransmissions."}},
    {"data_bytes_sent", &ShardCounts::data_bytes_sent},
    {"data_packets_received",
     &ShardCounts::data_packets_received,
     {"gradwire_data_packets_received_total", "Data packets accepted."}},
    {"data_bytes_received", &ShardCounts::data_bytes_received},
    {"retransmissions",
     &ShardCounts::retransmissions,
     {"gradwire_retransmissions_total", "Data packets retransmitted."}},
    {"path_moves",
     &ShardCounts::path_moves,
     {"gradwire_path_moves_total",
      "Times that data took another of several paths to the next rank, or the first again."}},
    {"peer_path_moves",
     &ShardCounts::peer_path_moves,
     {"gradwire_peer_path_moves_total",
      "Times that packets off the ring took another of several paths to a rank, or the first "
      "again."}},
    {"source_port_moves",
     &ShardCounts::source_port_moves,
     {"gradwire_source_port_moves_total",
      "Times that a link of the ring took another source port, since nothing arrived that was "
      "sent from the one before."}},
    {"peer_source_port_moves",
     &ShardCounts::peer_source_port_moves,
     {"gradwire_peer_source_port_moves_total", "The same of packets to ranks off the ring."}},
    {"probes", &ShardCounts::probes, {"gradwire_probes_total", "Probes sent at a probe timeout."}},
    {"ecn_ce_received",
     &ShardCounts::ecn_ce_received,
     {"gradwire_ecn_ce_packets_total", "Data packets received with Congestion Experienced."}},
    {"acks_sent", &ShardCounts::acks_sent},
    {"acks_received", &ShardCounts::acks_received},
    {"pings_sent", &ShardCounts::pings_sent},
    {"spills",
     &ShardCounts::spills,
     {"gradwire_spilled_chunks_total", "Chunks finished into memory, to be sent from there."}},
    {"early_packets", &ShardCounts::early_packets},
    {"copies",
     &ShardCounts::copies,
     {"gradwire_copied_payloads_total", "Payloads copied because their mbuf was shared."}},
    {"ops_done", &ShardCounts::ops_done},
    {"ops_direct",
     &ShardCounts::ops_direct,
     {"gradwire_direct_ops_total", "Ops that ranks sent to each other in one hop, by lane."}},
    {"ops_two_step",
     &ShardCounts::ops_two_step,
     {"gradwire_two_step_ops_total",
      "All-reduces of which each rank summed a part and sent it to all, by lane."}},
    {"ops_gathered",
     &ShardCounts::ops_gathered,
     {"gradwire_gathered_ops_total", "Ops that went to all ranks in log2(ranks) steps, by lane."}},
    {"contributions_received",
     &ShardCounts::contributions_received,
     {"gradwire_contributions_received_total",
      "Data packets of direct ops accepted, from any rank; the ring's are counted apart."}},
    {"receipts_received", &ShardCounts::receipts_received},
    {"pieces_sent",
     &ShardCounts::pieces_sent,
     {"gradwire_pieces_sent_total", "Packets with data of transfers sent, those sent again too."}},
    {"pieces_received",
     &ShardCounts::pieces_received,
     {"gradwire_pieces_received_total", "Packets with data of transfers accepted."}},
    {"piece_bytes_received",
     &ShardCounts::piece_bytes_received,
     {"gradwire_piece_bytes_received_total", "Bytes of transfers that came from other ranks."}},
    {"pieces_pulled_again",
     &ShardCounts::pieces_pulled_again,
     {"gradwire_pieces_pulled_again_total",
      "Packets of transfers that were asked for again, because they did not come."}},
    {"early_pieces", &ShardCounts::early_pieces},
    {"transfer_asks", &ShardCounts::transfer_asks},
    {"transfer_ends_done",
     &ShardCounts::transfer_ends_done,
     {"gradwire_transfer_ends_done_total",
      "Ends of transfers that are done: each process's sends and receives, and its parts of "
      "all-to-all, gather and scatter, by lane."}},
    {"ops_tiles",
     &ShardCounts::ops_tiles,
     {"gradwire_tile_ops_total", "Ops that owners summed tile by tile, by lane."}},
    {"ops_bf16",
     &ShardCounts::ops_bf16,
     {"gradwire_format_ops_total", kFormatsHelp, "format", "bf16"}},
    {"ops_int8",
     &ShardCounts::ops_int8,
     {"gradwire_format_ops_total", kFormatsHelp, "format", "int8"}},
    {"tile_pieces_sent", &ShardCounts::tile_pieces_sent},
    {"tile_pieces_received",
     &ShardCounts::tile_pieces_received,
     {"gradwire_tile_pieces_received_total",
      "Packets with parts and results of ops by tiles that were accepted."}},
    {"tile_bytes_received", &ShardCounts::tile_bytes_received},
    {"tile_pieces_pulled_again",
     &ShardCounts::tile_pieces_pulled_again,
     {"gradwire_tile_pieces_pulled_again_total",
      "Packets of ops by tiles that were asked for again, because they did not come."}},
    {"tile_words_sent", &ShardCounts::tile_words_sent},
    {"tile_asks", &ShardCounts::tile_asks},
    {"stalled_on_upstream_ns",
     &ShardCounts::stalled_on_upstream_ns,
     {"gradwire_stall_seconds_total", kStallHelp, "neighbor", "upstream"}},
    {"stalled_on_downstream_ns",
     &ShardCounts::stalled_on_downstream_ns,
     {"gradwire_stall_seconds_total", kStallHelp, "neighbor", "downstream"}},
});

inline constexpr auto kLaneCounters = std::to_array<Counter<LaneCounts>>({
    {"rounds", &LaneCounts::rounds},
    {"busy_rounds", &LaneCounts::busy_rounds},
    {"busy_ns",
     &LaneCounts::busy_ns,
     {"gradwire_lane_busy_seconds_total", "Time in rounds of the lane that did some work."}},
    {"idle_ns",
     &LaneCounts::idle_ns,
     {"gradwire_lane_idle_seconds_total",
      "Time in rounds of the lane that found no work, including sleep."}},
    {"sleep_ns",
     &LaneCounts::sleep_ns,
     {"gradwire_lane_sleep_seconds_total", "Time that the lane slept."}},
    {"sleeps", &LaneCounts::sleeps},
    {"rx_packets",
     &LaneCounts::rx_packets,
     {"gradwire_lane_receive_packets_total", "Frames received."}},
    {"rx_bytes",
     &LaneCounts::rx_bytes,
     {"gradwire_lane_receive_bytes_total", "Bytes of frames received."}},
    {"tx_packets",
     &LaneCounts::tx_packets,
     {"gradwire_lane_transmit_packets_total", "Frames sent."}},
    {"tx_bytes",
     &LaneCounts::tx_bytes,
     {"gradwire_lane_transmit_bytes_total", "Bytes of frames sent."}},
    {"tx_refused",
     &LaneCounts::tx_refused,
     {"gradwire_lane_transmit_refused_total", "Frames that waited because the port was full."}},
    {"tx_dropped",
     &LaneCounts::tx_dropped,
     {"gradwire_lane_transmit_dropped_total",
      "Frames dropped because the port accepted none for too long."}},
    {"echo_replies", &LaneCounts::echo_replies},
    {"replies_withheld", &LaneCounts::replies_withheld},
    {"neighbor_frames", &LaneCounts::neighbor_frames},
    {"neighbor_drops", &LaneCounts::neighbor_drops},
    {"ops_done",
     &LaneCounts::ops_done,
     {"gradwire_ops_done_total", "Ops whose part on the lane is done."}},
    {"aborts",
     &LaneCounts::aborts,
     {"gradwire_group_aborts_total", "Groups that aborted on the lane."}},
    {"stuck",
     &LaneCounts::stuck,
     {"gradwire_group_stuck_total",
      "Groups aborted because nothing moved although every rank had posted: a bug."}},
    {"op_bytes",
     &LaneCounts::op_bytes,
     {.name = "gradwire_op_bytes_total",
      .help = "Bytes of ops that are done; the rate of this counter is algbw.",
      .lane_0_alone = true}},
    {"bus_bytes",
     &LaneCounts::bus_bytes,
     {.name = "gradwire_bus_bytes_total",
      .help = "Bytes that ranks' links carry of ops, as nccl-tests counts them; its rate is "
              "busbw.",
      .lane_0_alone = true}},
});

inline constexpr auto kCommandCounters = std::to_array<Counter<CommandCounts>>({
    {"commands", &CommandCounts::commands},
    {"bad_commands", &CommandCounts::bad_commands},
});

/// Whether each counter of the struct has one row: there are as many, and no two are of the same.
template <class Counts, std::size_t kRows>
consteval bool has_every_counter(const std::array<Counter<Counts>, kRows>& table) {
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (table[i].member == table[j].member) return false;
    }
  }
  return kRows * sizeof(std::uint64_t) == sizeof(Counts);
}
static_assert(has_every_counter(kShardCounters), "a counter of ShardCounts has not just one row");
static_assert(has_every_counter(kLaneCounters), "a counter of LaneCounts has not just one row");
static_assert(has_every_counter(kCommandCounters),
              "a counter of CommandCounts has not just one row");

}  // namespace gradwire::status
