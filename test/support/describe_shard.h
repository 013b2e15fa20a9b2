// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All that a shard tells of itself, as text: to see that a packet changed nothing.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>

#include "collective/shard.h"

namespace gradwire::test {

/// @param but_for  drops that are left out: those that are expected to be counted.
inline std::string describe(const collective::Shard& shard, TimeNs now,
                            std::initializer_list<wire::Drop> but_for) {
  const collective::ShardStatus s = shard.status(now);
  std::string out = fmt::format(
      "{} ops {}/{}/{} silence {} {} flight {} {} queued {} early {} rtt {} {} {} {} pto {} heard "
      "{} {} backend {} window {} lost {} credit {} {} progress {} waits {}",
      static_cast<int>(s.state), s.posted_op_seq, s.done_op_seq, s.downstream_posted_op_seq,
      s.upstream_silence_ns, s.downstream_silence_ns, s.bytes_in_flight, s.packets_in_flight,
      s.transit_queued, s.early_held, s.smoothed_rtt_ns, s.latest_rtt_ns, s.min_rtt_ns, s.rttvar_ns,
      s.pto_count, s.upstream_heard, s.downstream_heard, s.in_backend, s.window_bytes,
      s.packets_lost, s.credit_chunks, s.chunks_sent, s.progress_at, s.waits_for_downstream);
  out += fmt::format(" deadline {} reason {} {} {} counters", shard.deadline(now),
                     static_cast<int>(shard.reason().code), shard.reason().culprit_rank,
                     shard.reason().detail);
  collective::ShardCounters counters = s.counters;
  for (const wire::Drop drop : but_for) counters.drops[static_cast<std::size_t>(drop)] = 0;
  std::array<std::uint64_t, sizeof counters / sizeof(std::uint64_t)> words;
  std::memcpy(words.data(), &counters, sizeof counters);
  return out + fmt::format(" {}", fmt::join(words, " "));
}

}  // namespace gradwire::test
