// SPDX-License-Identifier: BSD-3-Clause
#include "status/daemon_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "status/counter_table.h"
#include "status/fields.h"

namespace gradwire::status {

namespace {

using nlohmann::json;

template <class Table, class Counts>
void put_counters(json& out, const Table& table, const Counts& counts) {
  for (const auto& row : table) put(out, row.name, counts.*row.member);
}
template <class Table, class Counts>
void take_counters(const json& in, const Table& table, Counts& counts) {
  for (const auto& row : table) take(in, row.name, counts.*row.member);
}

}  // namespace

void to_json(json& out, const Transport& value) {
  out = json::object();
  put_counters(out, kShardCounters, value);
  put(out, "drops", value.drops);
}
void from_json(const json& in, Transport& value) {
  take_counters(in, kShardCounters, value);
  take(in, "drops", value.drops);
}

void to_json(json& out, const LaneCounters& value) {
  out = json::object();
  put_counters(out, kLaneCounters, value);
  put_counters(out, kCommandCounters, value);
  put(out, "ops", value.ops);
  put(out, "drops", value.drops);
}
void from_json(const json& in, LaneCounters& value) {
  take_counters(in, kLaneCounters, value);
  take_counters(in, kCommandCounters, value);
  take(in, "ops", value.ops);
  take(in, "drops", value.drops);
}

GRADWIRE_FIELDS(Address, port, address)
GRADWIRE_FIELDS(User, uid, control_steps, control_waits, waits)
GRADWIRE_FIELDS(Daemon, version, pid, state, uptime_s, incarnation, lanes, max_payload_bytes,
                features, base_udp_port, numa_node, addresses, security, security_minimum, keys,
                datapath, warnings, requests_outstanding, control_round_us_max,
                control_round_steps_max, open_questions, log_lines_dropped, users)
GRADWIRE_FIELDS(OpLatency, sum_ns, bounds_ns, counts)
GRADWIRE_FIELDS(Mempool, mempool, free, mbufs)
GRADWIRE_FIELDS(LanePort, device, driver, link)
GRADWIRE_FIELDS(Lane, lane, lcore, polling, nice, isolated, isolation_problems,
                involuntary_switches, ports, mempool_ops, packet_mbufs_free, requests_unsent,
                round_us_max, round_steps_max, heap_bytes, counters, op_latency, mempools,
                transport)
GRADWIRE_FIELDS(Reduce, backend, path, chunks_reduced, chunks_moved, bytes, batches)
GRADWIRE_FIELDS(FaultCounts, frames, dropped, duplicated, reordered, corrupted, delayed,
                passed_full, no_mbuf, held)
GRADWIRE_FIELDS(Faults, port, active, settings, seed, drop, duplicate, reorder, reorder_frames,
                corrupt, delay, delay_us, counters)
GRADWIRE_FIELDS(Member, member, process, client, pid, state)
GRADWIRE_FIELDS(Path, port, local_ip, remote_ip, remote_mac)
GRADWIRE_FIELDS(Neighbor, rank, incarnation, paths)
GRADWIRE_FIELDS(Shard, lane, state, posted_op_seq, done_op_seq, downstream_posted_op_seq,
                upstream_silence_s, downstream_silence_s, bytes_in_flight, packets_in_flight,
                window_bytes, credit_chunks, chunks_sent, transit_queued, early_held,
                smoothed_rtt_us, latest_rtt_us, min_rtt_us, rttvar_us, pto_count, packets_lost,
                ecn_ce_reported, upstream_heard, downstream_heard, in_backend, downstream_ip,
                downstream_ip_s, upstream_ip, downstream_source_port, upstream_source_port,
                on_other_path, peers_on_other_path, backend, backend_path, counters)
GRADWIRE_FIELDS(LateRank, rank, waited_s, last_s)
GRADWIRE_FIELDS(Group, group_id, epoch, handle, state, state_since_s, aborted, waits_for, rank,
                nranks, uid, lanes, payload_bytes, table_digest, security, key, job_key,
                key_memory_bytes, retransmissions, members, downstream, upstream, idle_networks,
                transfers_alone, direct_kib, two_step_kib, two_step_owners,
                ranks_of_one_source_port, gathered_kib, tiles, tiles_by_model, tile_share_percent,
                why_no_tiles, formats, why_no_formats, why_not_direct, late_ranks, shards)
GRADWIRE_FIELDS(Op, group_id, epoch, rank, op_seq, unfinished, lane, collective, wire, shape, bytes,
                posted_s, first_chunk_s, retransmissions, waits_for, waits_for_rank, since_s, text)
GRADWIRE_FIELDS(PortCounters, rx_packets, rx_bytes, rx_missed, rx_errors, rx_no_mbuf, tx_packets,
                tx_bytes, tx_errors, neighbors_evicted, arp_refused, neighbors_moved,
                neighbor_claims, neighbors_unanswered, duplicate_addresses)
GRADWIRE_FIELDS(Port, device, driver, link, up, mac, address, mtu, numa_node, queues, joined_queues,
                rx_interrupts, flow_steering, hashed_queues, splits_payload, neighbors,
                duplicate_mac, counters)
GRADWIRE_FIELDS(Memory, memory, bytes, on_gpu, page_bytes, numa_node, state)
GRADWIRE_FIELDS(Client, client, pid, uid, since_s, state, memory_bytes, memories)
GRADWIRE_FIELDS(DaemonStatus, daemon, lanes, reduce, faults, groups, ops, ports, clients)

std::string hidden_name(std::uint64_t handle) { return fmt::format("hidden-{}", handle); }

namespace {

void find_missing(std::vector<std::string>& out, const std::string& path, const json& in,
                  const json& whole) {
  if (whole.is_array()) {
    for (std::size_t i = 0; i < whole.size() && in.is_array() && i < in.size(); ++i) {
      find_missing(out, path, in[i], whole[i]);
    }
    return;
  }
  if (!whole.is_object()) return;
  for (const auto& [name, value] : whole.items()) {
    const std::string inner = path.empty() ? name : path + "." + name;
    if (in.is_object() && in.contains(name)) {
      find_missing(out, inner, in[name], value);
    } else if (std::ranges::find(out, inner) == out.end()) {
      out.push_back(inner);
    }
  }
}

}  // namespace

std::vector<std::string> missing_in(const json& in, const DaemonStatus& value) {
  std::vector<std::string> out;
  find_missing(out, "", in, value);
  return out;
}

}  // namespace gradwire::status
