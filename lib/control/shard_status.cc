// SPDX-License-Identifier: BSD-3-Clause
#include "control/shard_status.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "status/counter_table.h"

namespace gradwire::control {

namespace {

/// From this silence on a text mentions it.
constexpr TimeNs kNotableSilenceNs = 100'000'000;

double microseconds(TimeNs ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace

bool may_see(uid_t viewer, uid_t owner) noexcept {
  return viewer == owner || viewer == 0 || viewer == ::geteuid();
}

status::Shard shard_status(std::uint8_t lane, const collective::ShardStatus& shard,
                           std::span<const NeighborPath> downstream, TimeNs now) {
  status::Shard out;
  out.lane = lane;
  out.state = collective::name_of(shard.state);
  out.posted_op_seq = shard.posted_op_seq;
  out.done_op_seq = shard.done_op_seq;
  out.downstream_posted_op_seq = shard.downstream_posted_op_seq;
  out.upstream_silence_s = seconds(shard.upstream_silence_ns);
  out.downstream_silence_s = seconds(shard.downstream_silence_ns);
  out.bytes_in_flight = shard.bytes_in_flight;
  out.packets_in_flight = shard.packets_in_flight;
  out.window_bytes = shard.window_bytes;
  out.credit_chunks = shard.credit_chunks;
  out.chunks_sent = shard.chunks_sent;
  out.transit_queued = shard.transit_queued;
  out.early_held = shard.early_held;
  out.smoothed_rtt_us = microseconds(shard.smoothed_rtt_ns);
  out.latest_rtt_us = microseconds(shard.latest_rtt_ns);
  out.min_rtt_us = microseconds(shard.min_rtt_ns);
  out.rttvar_us = microseconds(shard.rttvar_ns);
  out.pto_count = shard.pto_count;
  out.packets_lost = shard.packets_lost;
  out.ecn_ce_reported = shard.ecn_ce_reported;
  out.upstream_heard = shard.upstream_heard;
  out.downstream_heard = shard.downstream_heard;
  out.in_backend = shard.in_backend;
  if (!downstream.empty() && shard.downstream_ip.family != 0) {
    out.downstream_ip = wire::to_string(shard.downstream_ip);
    out.upstream_ip = wire::to_string(shard.upstream_ip);
    out.on_other_path = !(shard.downstream_ip == path_of(downstream, lane).remote_ip);
    if (shard.downstream_ip_since != 0) {
      out.downstream_ip_s = seconds(std::max<TimeNs>(now - shard.downstream_ip_since, 0));
    }
  }
  out.peers_on_other_path = shard.peers_on_other_path;
  out.downstream_source_port = shard.downstream_source_port;
  out.upstream_source_port = shard.upstream_source_port;
  out.backend = shard.backend_name;
  out.backend_path = shard.backend_path;
  out.counters = transport_status(shard.counters);
  return out;
}

status::Transport transport_status(const collective::ShardCounters& counters) {
  status::Transport out;
  static_cast<ShardCounts&>(out) = counters;
  for (int i = 1; i < wire::kDropCount; ++i) {
    out.drops[wire::name_of(static_cast<wire::Drop>(i))] =
        counters.drops[static_cast<std::size_t>(i)];
  }
  return out;
}

status::LaneCounters lane_counters_status(const lane::LaneCounters& counters) {
  status::LaneCounters out;
  for (const auto& row : status::kLaneCounters) {
    out.*row.member = read_counter(counters.*row.member);
  }
  for (const auto& row : status::kCommandCounters) {
    out.*row.member = read_counter(counters.command.*row.member);
  }
  for (const Collective collective : kCollectives) {
    out.ops[std::string(name_of(collective))] =
        read_counter(counters.command.ops[index_of(collective)]);
  }
  for (int i = 1; i < wire::kDropCount; ++i) {
    out.drops[wire::name_of(static_cast<wire::Drop>(i))] =
        read_counter(counters.drops[static_cast<std::size_t>(i)]);
  }
  return out;
}

namespace {

/// Ranks `first` to `last`, one of which has not posted an op.
struct Late {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

/// Who may be late with an op that all ranks must have posted, if this rank and the next one have.
/// An acknowledgement says whether the rank that it comes from and all after it, up to the last
/// one, have posted; from rank 0 it says so of all.
std::optional<Late> late_ranks(std::uint16_t rank, std::uint16_t nranks, bool posted_onwards) {
  const auto next = static_cast<std::uint16_t>((rank + 1) % nranks);
  const bool is_last = next == 0;
  Late late;
  if (posted_onwards) {
    // The word that all have posted is still on its way to this rank, if none is left.
    if (rank == 0 || is_last) return std::nullopt;
    late = {0, static_cast<std::uint16_t>(rank - 1)};
  } else {
    late.first = static_cast<std::uint16_t>(next + 1);
    late.last = static_cast<std::uint16_t>(is_last ? rank - 1 : nranks - 1);
  }
  if (late.first > late.last) return std::nullopt;
  return late;
}

/// About the rank of which an op by tiles lacks most.
std::string progress_text(const collective::TileProgress& tiles) {
  if (tiles.chunks == 0) return {};
  return fmt::format(", of which {} of {} chunks have come; {} of {} tiles are summed here",
                     tiles.chunks_here, tiles.chunks, tiles.folded, tiles.tiles);
}

}  // namespace

OpWait op_wait(const Group& group, std::uint8_t lane, const collective::ShardStatus& status,
               TimeNs now) {
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
    wait.neighbor = "downstream";
    wait.rank = group.downstream_rank();
    wait.text += fmt::format("downstream rank {}{}", wait.rank, what);
  };
  // To a rank without members its host says what it has posted only when it answers a ping.
  const bool on_ring = !group.folds_only();
  const auto late =
      on_ring && status.waits_for_posts && status.downstream_posted_op_seq >= wait.op_seq
          ? late_ranks(group.rank, group.nranks(), status.posted_onwards)
          : std::nullopt;
  if (status.upstream_silence_ns >= kNotableSilenceNs) {
    wait.neighbor = "upstream";
    wait.rank = group.upstream_rank();
    wait.is_late = true;
    wait.since = now - status.upstream_silence_ns;
    wait.text += fmt::format("upstream rank {}, silent for {:.3f} s", wait.rank,
                             seconds(status.upstream_silence_ns));
  } else if (status.downstream_silence_ns >= kNotableSilenceNs) {
    wait.since = now - status.downstream_silence_ns;
    wait.is_late = true;
    downstream(fmt::format(", silent for {:.3f} s", seconds(status.downstream_silence_ns)));
  } else if (on_ring && status.downstream_posted_op_seq < wait.op_seq) {
    wait.is_late = true;
    downstream(fmt::format(", whose clients have posted ops only up to {}",
                           status.downstream_posted_op_seq));
  } else if (status.is_contribution_missing) {
    wait.neighbor = "rank";
    wait.rank = status.missing_rank;
    wait.text += fmt::format("the contribution of rank {}", wait.rank);
    if (wait.rank >= group.nranks()) {
      wait.text += ", which sums what all ranks give" + progress_text(status.tiles);
    } else if (!status.missing_rank_has_posted) {
      wait.is_late = true;
      wait.text += ", whose clients have not posted it";
    } else if (status.least_heard_rank == wait.rank && status.least_heard_ns >= kNotableSilenceNs) {
      wait.is_late = true;
      wait.text += fmt::format(", silent for {:.3f} s", seconds(status.least_heard_ns));
    } else {
      wait.text += progress_text(status.tiles);
    }
  } else if (late) {
    wait.neighbor = late->first == late->last ? "rank" : "ranks";
    wait.rank = late->first;
    wait.is_late = late->first == late->last;
    wait.text += late->first == late->last
                     ? fmt::format("rank {}, whose clients have not posted it", late->first)
                     : fmt::format("one of ranks {} to {}, whose clients have not posted it",
                                   late->first, late->last);
  } else if (status.in_backend > 0) {
    wait.text +=
        fmt::format("backend {1} to reduce {0} chunks", status.in_backend, status.backend_name);
  } else if (status.waits_for_downstream && status.chunks_sent >= status.credit_chunks) {
    downstream(", which grants no credit");
  } else if (status.waits_for_downstream) {
    downstream(fmt::format(" to acknowledge {} bytes", status.bytes_in_flight));
  } else {
    wait.neighbor = "upstream";
    wait.rank = group.upstream_rank();
    wait.text += fmt::format("data from upstream rank {}", wait.rank);
  }
  return wait;
}

std::optional<status::Op> transfer_status(const Group& group, std::uint8_t lane,
                                          const collective::ShardStatus& shard, TimeNs now) {
  const collective::TransferWait& oldest = shard.transfer;
  if (oldest.unfinished == 0) return std::nullopt;
  status::Op out;
  const bool sends = oldest.end == collective::TransferEnd::kSource;
  const TimeNs since = oldest.moved_at != 0 ? oldest.moved_at : oldest.posted_at;
  std::string waits_for;
  if (oldest.rank == group.rank) {
    waits_for =
        oldest.posted_there ? "its turn to be copied" : "that process, which has not posted it";
  } else if (oldest.rank_silent_ns >= kNotableSilenceNs) {
    waits_for =
        fmt::format("rank {}, silent for {:.3f} s", oldest.rank, seconds(oldest.rank_silent_ns));
  } else if (!oldest.posted_there) {
    waits_for = fmt::format("that process of rank {}, which has not posted it", oldest.rank);
  } else {
    waits_for = fmt::format("{} rank {}", sends ? "pulls of" : "data from", oldest.rank);
  }
  out.group_id = fmt::format("{:016x}", group.key.group_id);
  out.epoch = group.key.epoch;
  out.rank = group.rank;
  out.op_seq = oldest.sequence;
  out.unfinished = oldest.unfinished;
  out.lane = lane;
  out.collective = wire::name_of(oldest.terms.call);
  if (oldest.terms.call == wire::TransferCall::kSendRecv) out.collective = sends ? "send" : "recv";
  out.bytes = oldest.terms.bytes;
  out.posted_s = seconds(std::max<TimeNs>(now - oldest.posted_at, 0));
  out.waits_for = oldest.rank == group.rank ? "this rank" : "rank";
  out.waits_for_rank = oldest.rank;
  out.since_s = seconds(std::max<TimeNs>(now - since, 0));
  out.text = fmt::format("{} of {}{} bytes on lane {}, transfer {} of {}: waits for {}",
                         out.collective, oldest.up_to ? "up to " : "", oldest.terms.bytes, lane,
                         oldest.sequence, wire::text_of(oldest.pair).text, waits_for);
  return out;
}

status::Op op_status(const Group& group, std::uint8_t lane, const OpWait& wait,
                     const collective::ShardStatus& shard, TimeNs now) {
  const auto age = [now](TimeNs at) {
    return at == 0 ? std::nullopt : std::optional(seconds(std::max<TimeNs>(now - at, 0)));
  };
  status::Op out;
  out.group_id = fmt::format("{:016x}", group.key.group_id);
  out.epoch = group.key.epoch;
  out.rank = group.rank;
  out.op_seq = wait.op_seq;
  out.unfinished = shard.posted_op_seq - shard.done_op_seq;
  out.lane = lane;
  out.collective = name_of(shard.oldest_op.collective);
  out.wire = name_of(shard.oldest_op.wire);
  out.shape = name_of(shard.oldest_op.shape);
  out.bytes = shard.oldest_op.bytes;
  out.posted_s = age(shard.oldest_op.posted_at);
  out.first_chunk_s = age(shard.oldest_op.first_chunk_at);
  out.retransmissions = shard.oldest_op.retransmissions;
  out.waits_for = *wait.neighbor == '\0' ? "this rank" : wait.neighbor;
  out.waits_for_rank = wait.rank;
  out.since_s = age(wait.since);
  out.text = wait.text;
  return out;
}

}  // namespace gradwire::control
