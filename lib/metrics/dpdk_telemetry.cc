// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/dpdk_telemetry.h"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_telemetry.h>
#include <rte_version.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "metrics/flatten.h"

namespace gradwire::metrics {
namespace {

/// Much longer than a round of the control thread, but short enough for a person who waits.
constexpr std::chrono::milliseconds kTelemetryPatience{2000};

/// DPDK's callbacks have no argument for an object.
std::shared_ptr<StatusBoard> the_board;

int add_whole(rte_tel_data* data, const char* name, std::uint64_t value) {
#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
  return rte_tel_data_add_dict_uint(data, name, value);
#else
  return rte_tel_data_add_dict_u64(data, name, value);
#endif
}

int give(const Answer& answer, rte_tel_data* data) {
  if (!answer.valid) return -EINVAL;
  if (answer.dict.empty()) {
    rte_tel_data_start_array(data, RTE_TEL_STRING_VAL);
    for (const std::string& name : answer.list) rte_tel_data_add_array_string(data, name.c_str());
    return 0;
  }
  rte_tel_data_start_dict(data);
  for (const auto& [name, value] : answer.dict) {
    // What does not fit (256 values, texts of 127 bytes) is left out; the control socket shows
    // everything.
    if (const auto* whole = std::get_if<std::uint64_t>(&value)) {
      add_whole(data, name.c_str(), *whole);
    } else {
      const std::string text = std::get<std::string>(value).substr(0, RTE_TEL_MAX_STRING_LEN - 1);
      rte_tel_data_add_dict_string(data, name.c_str(), text.c_str());
    }
  }
  return 0;
}

template <class Make>
int handle(const char* parameter, rte_tel_data* data, Make&& make) noexcept {
  try {
    const auto status = the_board->ask(kTelemetryPatience);
    if (!status) return -EAGAIN;
    return give(make(*status, std::string(parameter == nullptr ? "" : parameter)), data);
  } catch (...) {  // no exception may reach DPDK's thread
    return -ENOMEM;
  }
}

template <Answer (*kMake)(const status::DaemonStatus&, const std::string&)>
int on_part(const char* /*command*/, const char* parameter, rte_tel_data* data) {
  return handle(parameter, data, kMake);
}

int on_status(const char* /*command*/, const char* /*parameter*/, rte_tel_data* data) {
  return handle(nullptr, data,
                [](const auto& status, const std::string&) { return answer_status(status); });
}

}  // namespace

Result<void> register_dpdk_telemetry(std::shared_ptr<StatusBoard> board) {
  struct Endpoint {
    const char* command;
    telemetry_cb callback;
    const char* help;
  };
  static constexpr Endpoint kEndpoints[] = {
      {"/gradwire/status", on_status, "State, version and groups of the daemon. No parameters"},
      {"/gradwire/groups", on_part<answer_groups>,
       "All group ids, or one group. Parameter: index or id"},
      {"/gradwire/ports", on_part<answer_ports>,
       "All ports, or one port. Parameter: index or device"},
      {"/gradwire/lanes", on_part<answer_lanes>, "All lanes, or one lane. Parameter: lane"},
      {"/gradwire/counters", on_part<answer_counters>,
       "All lanes, or the counters of one. Parameter: lane"},
  };
  const bool first = the_board == nullptr;
  the_board = std::move(board);
  if (!first) return {};
  for (const Endpoint& endpoint : kEndpoints) {
    const int status =
        rte_telemetry_register_cmd(endpoint.command, endpoint.callback, endpoint.help);
    if (status != 0) {
      return fail(ErrorCode::kSystem, fmt::format("telemetry endpoint {}: {}", endpoint.command,
                                                  rte_strerror(-status)));
    }
  }
  return {};
}

}  // namespace gradwire::metrics
