// SPDX-License-Identifier: BSD-3-Clause
#include "control/fault_control.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <map>
#include <string>

#include "collective/shard_config.h"
#include "lane/counters.h"

namespace gradwire::control {
namespace {

using nlohmann::json;

/// Each value is read separately, as the lane last wrote it.
void add(status::FaultCounts& sum, const port::FaultCounters& counters) {
  sum.frames += read_counter(counters.frames);
  sum.dropped += read_counter(counters.dropped);
  sum.duplicated += read_counter(counters.duplicated);
  sum.reordered += read_counter(counters.reordered);
  sum.corrupted += read_counter(counters.corrupted);
  sum.delayed += read_counter(counters.delayed);
  sum.passed_full += read_counter(counters.passed_full);
  sum.no_mbuf += read_counter(counters.no_mbuf);
  sum.held += read_counter(counters.held);
}

}  // namespace

FaultControl::FaultControl(const ManagerOptions& options, std::uint8_t lanes,
                           const LaneReports& reports, LaneRequests& requests, Replies& replies)
    : options_(options),
      lanes_(lanes),
      reports_(reports),
      requests_(requests),
      replies_(replies),
      ports_(reports.port_faults()) {}

void FaultControl::inject(const PendingReply& to, std::span<const std::byte> body) {
  const auto request = ipc::body_as<ipc::InjectRequest>(body);
  if (!request) {
    return replies_.error(
        to, {ErrorCode::kInvalidArgument, fmt::format("inject request of {} bytes, must be {}",
                                                      body.size(), sizeof(ipc::InjectRequest))});
  }
  if (const auto checked = check(request->faults); !checked) {
    return replies_.error(to, checked.error());
  }
  if (request->faults.corrupt > 0 &&
      (options_.daemon.features & collective::kNoPayloadCrcFeature) != 0) {
    return replies_.error(
        to, {ErrorCode::kUnsupported,
             "with transport.integrity = link nobody would notice a bit that flips in a payload, "
             "and sums would be wrong: inject other faults"});
  }
  const std::string device = ipc::text_of(request->device);
  bool found = false;
  /// By device, since a new injection replaces the old one.
  std::map<std::string, std::string> replaced;
  for (std::uint16_t i = 0; i < ports_.size(); ++i) {
    const PortFaults& port = ports_[i];
    if (!device.empty() && device != port.device) continue;
    found = true;
    if (port.splits_payload && (request->faults.duplicate > 0 || request->faults.corrupt > 0)) {
      return replies_.error(
          to, {ErrorCode::kUnsupported,
               fmt::format("port {}: payloads are in GPU memory, so the CPU cannot duplicate or "
                           "corrupt frames: drop, reorder or delay them instead",
                           port.device)});
    }
    if (port.faults.active()) replaced[port.device] = describe(port.faults);
    set(i, request->faults);
  }
  if (found) {
    json answer = status();
    for (json& entry : answer) {
      const auto before = replaced.find(entry["port"].get<std::string>());
      entry["replaced"] = before == replaced.end() ? json(nullptr) : json(before->second);
    }
    return replies_.json(to, answer);
  }
  std::string names;
  for (const PortFaults& port : ports_) names += (names.empty() ? "" : ", ") + port.device;
  replies_.error(to, {ErrorCode::kNotFound,
                      fmt::format("there is no port \"{}\" to inject faults on; the ports are: {}",
                                  device, names.empty() ? "none" : names)});
}

void FaultControl::set(std::uint16_t port, const FaultSettings& faults) {
  spdlog::warn("FAULT INJECTION on port {}: {}", ports_[port].device, describe(faults));
  ports_[port].faults = faults;
  for (std::uint8_t lane = 0; lane < lanes_; ++lane) {
    command::Request change;
    change.type = command::RequestType::kSetFaults;
    change.port = port;
    change.faults = faults;
    requests_.send(lane, std::move(change));
  }
}

std::vector<status::Faults> FaultControl::status() const {
  std::vector<status::Faults> out;
  for (std::uint16_t port = 0; port < ports_.size(); ++port) {
    status::FaultCounts sum;
    for (std::uint8_t lane = 0; lane < lanes_; ++lane) {
      add(sum, reports_.fault_counters(port, lane));
    }
    const FaultSettings& faults = ports_[port].faults;
    if (!faults.active() && sum.frames == 0) continue;
    status::Faults& entry = out.emplace_back();
    entry.port = ports_[port].device;
    entry.active = faults.active();
    entry.settings = describe(faults);
    entry.seed = faults.seed;
    entry.drop = faults.drop;
    entry.duplicate = faults.duplicate;
    entry.reorder = faults.reorder;
    entry.reorder_frames = faults.reorder_frames;
    entry.corrupt = faults.corrupt;
    entry.delay = faults.delay;
    entry.delay_us = faults.delay_us;
    entry.counters = sum;
  }
  return out;
}

}  // namespace gradwire::control
