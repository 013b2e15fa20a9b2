// SPDX-License-Identifier: BSD-3-Clause
// Faults that ports inject on purpose: set through the control socket, shown in the status, and
// always logged as a warning.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "collective/shard_config.h"
#include "control/manager.h"
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

void Manager::inject(const PendingReply& to, const ipc::PeerCredentials& peer,
                     std::span<const std::byte> body) {
  // Users of the daemon must not be able to break it for others.
  if (!may_operate(to, peer)) return;
  const auto request = ipc::body_as<ipc::InjectRequest>(body);
  if (!request) {
    return reply_error(
        to, {ErrorCode::kInvalidArgument, fmt::format("inject request of {} bytes, must be {}",
                                                      body.size(), sizeof(ipc::InjectRequest))});
  }
  if (const auto checked = check(request->faults); !checked) {
    return reply_error(to, checked.error());
  }
  if (request->faults.corrupt > 0 &&
      (options_.daemon.features & collective::kNoPayloadCrcFeature) != 0) {
    return reply_error(
        to, {ErrorCode::kUnsupported,
             "with transport.integrity = link nobody would notice a bit that flips in a payload, "
             "and sums would be wrong: inject other faults"});
  }
  const std::string device = ipc::text_of(request->device);
  bool found = false;
  /// By device, since a new injection replaces the old one.
  std::map<std::string, std::string> replaced;
  for (std::uint16_t i = 0; i < port_faults_.size(); ++i) {
    const PortFaults& port = port_faults_[i];
    if (!device.empty() && device != port.device) continue;
    found = true;
    if (port.splits_payload && (request->faults.duplicate > 0 || request->faults.corrupt > 0)) {
      return reply_error(
          to, {ErrorCode::kUnsupported,
               fmt::format("port {}: payloads are in GPU memory, so the CPU cannot duplicate or "
                           "corrupt frames: drop, reorder or delay them instead",
                           port.device)});
    }
    if (port.faults.active()) replaced[port.device] = describe(port.faults);
    set_faults(i, request->faults);
  }
  if (found) {
    json answer = faults_status();
    for (json& entry : answer) {
      const auto before = replaced.find(entry["port"].get<std::string>());
      entry["replaced"] = before == replaced.end() ? json(nullptr) : json(before->second);
    }
    return reply_json(to, answer);
  }
  std::string names;
  for (const PortFaults& port : port_faults_) names += (names.empty() ? "" : ", ") + port.device;
  reply_error(to, {ErrorCode::kNotFound,
                   fmt::format("there is no port \"{}\" to inject faults on; the ports are: {}",
                               device, names.empty() ? "none" : names)});
}

void Manager::set_faults(std::uint16_t port, const FaultSettings& faults) {
  spdlog::warn("FAULT INJECTION on port {}: {}", port_faults_[port].device, describe(faults));
  port_faults_[port].faults = faults;
  for (std::uint8_t lane = 0; lane < lanes_.lanes(); ++lane) {
    command::Request change;
    change.type = command::RequestType::kSetFaults;
    change.port = port;
    change.faults = faults;
    request(lane, std::move(change));
  }
}

std::vector<status::Faults> Manager::faults_status() const {
  std::vector<status::Faults> out;
  for (std::uint16_t port = 0; port < port_faults_.size(); ++port) {
    status::FaultCounts sum;
    for (std::uint8_t lane = 0; lane < lanes_.lanes(); ++lane) {
      add(sum, reports_.fault_counters(port, lane));
    }
    const FaultSettings& faults = port_faults_[port].faults;
    if (!faults.active() && sum.frames == 0) continue;
    status::Faults& entry = out.emplace_back();
    entry.port = port_faults_[port].device;
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
