// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the verbs show of the daemon's status: the part that --json prints, and its text. What a
/// newer daemon adds is left out, what an older one lacks shows as "?". Pure; any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace gradwire::cli {

/// "aborted" where it is and its members have not left, else as the daemon calls it.
[[nodiscard]] std::string state_of(const nlohmann::json& group);
/// "-" before there is a sample.
[[nodiscard]] std::string rtt_of(const nlohmann::json& shard);
[[nodiscard]] nlohmann::json groups_of(const nlohmann::json& status);
[[nodiscard]] std::string groups_text(const nlohmann::json& groups);
/// Every counter under a name with dots.
[[nodiscard]] nlohmann::json counters_of(const nlohmann::json& status);
[[nodiscard]] std::string counters_text(const nlohmann::json& counters);
[[nodiscard]] nlohmann::json ops_of(const nlohmann::json& status);
[[nodiscard]] std::string ops_text(const nlohmann::json& ops);
[[nodiscard]] nlohmann::json ports_of(const nlohmann::json& status);
[[nodiscard]] std::string ports_text(const nlohmann::json& ports);
/// Rates between two looks `seconds` apart; all 0 where `seconds` is.
[[nodiscard]] nlohmann::json top_of(const nlohmann::json& before, const nlohmann::json& after,
                                    double seconds);
[[nodiscard]] std::string top_text(const nlohmann::json& top);
/// Which events of the trace: of the group, as its id begins; of the op; the last so many.
struct TraceFilter {
  std::string group;
  std::uint64_t op = 0;    ///< 0: of all
  std::uint64_t last = 0;  ///< 0: all
};
/// The trace with those events alone, in order of time; "left_out" says how many older ones `last`
/// left out.
[[nodiscard]] nlohmann::json filter_trace(const nlohmann::json& trace, const TraceFilter& filter);
/// The daemon's trace, a line an event, and in the trace-event format.
[[nodiscard]] std::string trace_text(const nlohmann::json& trace);
[[nodiscard]] nlohmann::json perfetto_of(const nlohmann::json& trace);

}  // namespace gradwire::cli
