// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the verbs show of the daemon's status and trace, as text and where it is not the daemon's
/// own JSON, as JSON. Pure; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "status/daemon_status.h"

namespace gradwire::cli {

/// "aborted" if the group has aborted and members have not left yet, else the daemon's name of the
/// state.
[[nodiscard]] std::string state_of(const status::Group& group);
/// "-" before there is a sample.
[[nodiscard]] std::string rtt_of(const status::Shard& shard);
[[nodiscard]] std::string groups_text(const status::DaemonStatus& status);
/// Every counter under a name with dots.
[[nodiscard]] nlohmann::json counters_of(const status::DaemonStatus& status);
[[nodiscard]] std::string counters_text(const status::DaemonStatus& status);
[[nodiscard]] std::string ops_text(const std::vector<status::Op>& ops);
[[nodiscard]] std::string ports_text(const status::DaemonStatus& status);

/// What a lane did between two updates.
struct TopLane {
  std::uint32_t lane = 0;
  double load = 0;  ///< part of the time in rounds that did something
  double rx_packets_per_s = 0;
  double tx_packets_per_s = 0;
  double rx_bytes_per_s = 0;
  double tx_bytes_per_s = 0;
  double ops_per_s = 0;
  double retransmissions_per_s = 0;
  double drops_per_s = 0;
  double stalled = 0;  ///< part of the time
  std::optional<std::uint32_t> mbufs_free;
};
/// A rank for which the ops of a group waited between two updates.
struct TopLate {
  std::string group_id;
  std::uint16_t rank = 0;
  double late = 0;      ///< part of the time
  double waited_s = 0;  ///< since the group was formed
};
struct Top {
  status::Daemon daemon;
  double seconds = 0;
  double algbw_bytes_per_s = 0;
  double busbw_bytes_per_s = 0;
  double latency_p50_us = 0;
  double latency_p99_us = 0;
  std::vector<TopLane> lanes;
  std::vector<status::Op> ops;
  std::vector<TopLate> late_ranks;  ///< the one that was late most of the time first
  std::uint64_t groups = 0;
  std::uint64_t clients = 0;
};
void to_json(nlohmann::json& out, const TopLane& value);
void to_json(nlohmann::json& out, const TopLate& value);
void to_json(nlohmann::json& out, const Top& value);
/// Rates between two updates `seconds` apart; all 0 if `seconds` is 0.
[[nodiscard]] Top top_of(const status::DaemonStatus& before, const status::DaemonStatus& after,
                         double seconds);
[[nodiscard]] std::string top_text(const Top& top);

/// Selects events of the trace: by the first digits of a group's id, by op, and only the last ones.
struct TraceFilter {
  std::string group;
  std::uint64_t op = 0;    ///< 0: events of all ops
  std::uint64_t last = 0;  ///< 0: all
};
/// The trace with those events alone, in order of time; "left_out" says how many older ones `last`
/// left out.
[[nodiscard]] nlohmann::json filter_trace(const nlohmann::json& trace, const TraceFilter& filter);
/// The daemon's trace, a line an event, and in the trace-event format.
[[nodiscard]] std::string trace_text(const nlohmann::json& trace);
[[nodiscard]] nlohmann::json perfetto_of(const nlohmann::json& trace);

}  // namespace gradwire::cli
