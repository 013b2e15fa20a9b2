// SPDX-License-Identifier: BSD-3-Clause
#include "group/shard_json.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace gradwire::group {

using nlohmann::json;

namespace {

/// Silence of a neighbour that is worth a word.
constexpr TimeNs kNotableSilenceNs = 100'000'000;

double microseconds(TimeNs ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace

bool may_see(uid_t viewer, uid_t owner) noexcept {
  return viewer == owner || viewer == 0 || viewer == ::geteuid();
}

std::string hidden_name(std::uint64_t handle) { return fmt::format("hidden-{}", handle); }

json shard_json(std::uint8_t lane, const ring::ShardStatus& status) {
  return {{"lane", lane},
          {"state", ring::name_of(status.state)},
          {"posted_op_seq", status.posted_op_seq},
          {"done_op_seq", status.done_op_seq},
          {"downstream_posted_op_seq", status.downstream_posted_op_seq},
          {"upstream_silence_s", seconds(status.upstream_silence_ns)},
          {"downstream_silence_s", seconds(status.downstream_silence_ns)},
          {"bytes_in_flight", status.bytes_in_flight},
          {"packets_in_flight", status.packets_in_flight},
          {"window_bytes", status.window_bytes},
          {"credit_chunks", status.credit_chunks},
          {"chunks_sent", status.chunks_sent},
          {"transit_queued", status.transit_queued},
          {"early_held", status.early_held},
          {"smoothed_rtt_us", microseconds(status.smoothed_rtt_ns)},
          {"latest_rtt_us", microseconds(status.latest_rtt_ns)},
          {"min_rtt_us", microseconds(status.min_rtt_ns)},
          {"rttvar_us", microseconds(status.rttvar_ns)},
          {"pto_count", status.pto_count},
          {"packets_lost", status.packets_lost},
          {"ecn_ce_reported", status.ecn_ce_reported},
          {"upstream_heard", status.upstream_heard},
          {"downstream_heard", status.downstream_heard},
          {"in_backend", status.in_backend},
          {"backend", status.backend_name},
          {"backend_path", status.backend_path},
          {"counters", counters_json(status.counters)}};
}

json counters_json(const ring::ShardCounters& counters) {
  json drops = json::object();
  for (int i = 1; i < wire::kDropCount; ++i) {
    drops[wire::name_of(static_cast<wire::Drop>(i))] = counters.drops[static_cast<std::size_t>(i)];
  }
  return {{"data_packets_sent", counters.data_packets_sent},
          {"data_bytes_sent", counters.data_bytes_sent},
          {"data_packets_received", counters.data_packets_received},
          {"data_bytes_received", counters.data_bytes_received},
          {"retransmissions", counters.retransmissions},
          {"probes", counters.probes},
          {"acks_sent", counters.acks_sent},
          {"acks_received", counters.acks_received},
          {"pings_sent", counters.pings_sent},
          {"spills", counters.spills},
          {"early_packets", counters.early_packets},
          {"copies", counters.copies},
          {"ops_done", counters.ops_done},
          {"ecn_ce_received", counters.ecn_ce_received},
          {"stalled_on_downstream_ns", counters.stalled_on_downstream_ns},
          {"stalled_on_upstream_ns", counters.stalled_on_upstream_ns},
          {"drops", std::move(drops)}};
}

OpWait op_wait(const Group& group, std::uint8_t lane, const ring::ShardStatus& status, TimeNs now) {
  OpWait wait;
  if (status.posted_op_seq <= status.done_op_seq) return wait;
  wait.op_seq = status.done_op_seq + 1;
  wait.rank = group.rank;
  wait.since = status.progress_at != 0 ? status.progress_at : status.oldest_op.posted_at;
  wait.text = fmt::format("op {} on lane {}: ", wait.op_seq, lane);
  if (group.nranks() == 1) {
    wait.text += "local reduction";
    return wait;
  }
  const auto downstream = [&](const std::string& what) {
    wait.neighbour = "downstream";
    wait.rank = group.downstream_rank();
    wait.text += fmt::format("downstream rank {}{}", wait.rank, what);
  };
  if (status.upstream_silence_ns >= kNotableSilenceNs) {
    wait.neighbour = "upstream";
    wait.rank = group.upstream_rank();
    wait.since = now - status.upstream_silence_ns;
    wait.text += fmt::format("upstream rank {}, silent for {:.3f} s", wait.rank,
                             seconds(status.upstream_silence_ns));
  } else if (status.downstream_silence_ns >= kNotableSilenceNs) {
    wait.since = now - status.downstream_silence_ns;
    downstream(fmt::format(", silent for {:.3f} s", seconds(status.downstream_silence_ns)));
  } else if (status.downstream_posted_op_seq < wait.op_seq) {
    downstream(
        fmt::format(", whose clients have posted only op {}", status.downstream_posted_op_seq));
  } else if (status.in_backend > 0) {
    wait.text += fmt::format("{} chunks in the backend {}", status.in_backend, status.backend_name);
  } else if (status.waits_for_downstream && status.chunks_sent >= status.credit_chunks) {
    downstream(", which grants no credit");
  } else if (status.waits_for_downstream) {
    downstream(fmt::format(" to acknowledge {} bytes", status.bytes_in_flight));
  } else {
    wait.neighbour = "upstream";
    wait.rank = group.upstream_rank();
    wait.text += fmt::format("data from upstream rank {}", wait.rank);
  }
  return wait;
}

json op_json(const Group& group, std::uint8_t lane, const OpWait& wait,
             const ring::ShardStatus& status, TimeNs now) {
  const auto age = [now](TimeNs at) {
    return at == 0 ? json(nullptr) : json(seconds(std::max<TimeNs>(now - at, 0)));
  };
  return {{"group_id", fmt::format("{:016x}", group.key.group_id)},
          {"epoch", group.key.epoch},
          {"rank", group.rank},
          {"op_seq", wait.op_seq},
          {"unfinished", status.posted_op_seq - status.done_op_seq},
          {"lane", lane},
          {"bytes", status.oldest_op.bytes},
          {"posted_s", age(status.oldest_op.posted_at)},
          {"first_chunk_s", age(status.oldest_op.first_chunk_at)},
          {"retransmissions", status.oldest_op.retransmissions},
          {"waits_for", *wait.neighbour == '\0' ? "this rank" : wait.neighbour},
          {"waits_for_rank", wait.rank},
          {"since_s", age(wait.since)},
          {"text", wait.text}};
}

}  // namespace gradwire::group
