// SPDX-License-Identifier: BSD-3-Clause
// What the daemon finds out about its machine before it serves, for its report and its log.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rte_eal.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstring>

#include "config/load.h"
#include "daemon.h"
#include "host/nice.h"
#include "settings.h"

namespace gradwire::gradwired {

Result<void> Daemon::measure() {
  spdlog::info("effective configuration:\n{}", config::to_toml(config_));
  for (const auto& port : datapath_->ports()) {
    report_port(*port, datapath_->max_payload_bytes(), report_);
    if (config_.transport.source_ports > 1) report_hashed_queues(*port, report_);
  }
  report_.facts.push_back(fmt::format("transport.integrity = {}", config_.transport.integrity));
  if (gpu_ != nullptr) {
    for (const auto& port : datapath_->ports()) report_gpu(gpu_->device(), *port, report_);
    for (std::string& fact : gpu_->device().facts()) report_.facts.push_back(std::move(fact));
    for (const std::string& warning : gpu_->device().warnings()) {
      report_.warnings.push_back(warning);
    }
  }
  prioritize_lanes();
  if (auto measured = measure_cores(); !measured) return measured;
  if (rte_eal_has_hugepages() == 0) {
    report_.warnings.emplace_back(
        "the EAL runs without hugepages: this daemon is slow and only for tests");
  } else {
    const auto mappings = host::read_mappings();
    if (!mappings) return tl::unexpected(mappings.error());
    for (std::uint8_t lane = 0; lane < datapath_->lanes(); ++lane) {
      const port::LanePools& pools = datapath_->pools(lane);
      const int node = datapath_->ports().front()->socket();
      for (rte_mempool* pool : {pools.packet(), pools.control()}) {
        if (auto verdict = report_pool(*pool, pools.ops(), node, *mappings, report_); !verdict) {
          return verdict;
        }
      }
    }
  }
  report_host(host::Machine(), host_subject(), report_);
  for (const std::string& fact : report_.facts) spdlog::info("{}", fact);
  for (const std::string& fact : report_.passing) spdlog::info("{}", fact);
  for (const std::string& warning : report_.warnings) spdlog::warn("{}", warning);
  return {};
}

host::Subject Daemon::host_subject() const {
  auto subject = host::Subject::without_ports();
  for (const config::PortSection& port : config_.ports) subject.add_port(port.device);
  for (std::uint8_t lane = 0; lane < datapath_->lanes(); ++lane) {
    for (const auto& core :
         cores_of_lcore(threads_->lcore(lane)).value_or(std::vector<host::CoreFacts>{})) {
      subject.lane_cpus.push_back(core.cpu);
    }
  }
  for (const auto& port : datapath_->ports()) {
    // These ports share their interface with the kernel, whose sockets may use our UDP ports.
    if (!port->row().tx_may_block) continue;
    subject.base_udp_port = static_cast<std::uint16_t>(config_.lanes.base_udp_port);
  }
  subject.lanes = datapath_->lanes();
  subject.ecn = config_.transport.ecn;
  subject.congestion = config_.transport.congestion;
  // An emulated GPU is no device of the host.
  subject.reduces_on_gpu = gpu_ != nullptr && !config_.gpu.device.starts_with("gpu_emu");
  subject.seals = !config_.security.key_file.empty();
  return subject;
}

void Daemon::prioritize_lanes() {
  // A busy lane never sleeps, so with a nice value below 0 it would starve everything else on its
  // core.
  if (config_.lanes.polling != "adaptive") return;
  const host::Machine machine;
  const int nice = static_cast<int>(config_.lanes.nice);
  if (const int error = threads_->set_nice(nice); error != 0) {
    const bool refused = error == EACCES || error == EPERM;
    report_.warnings.push_back(fmt::format(
        "lanes.nice = {}: the lanes keep nice {}: {}", nice, threads_->nice(0).value_or(0),
        refused ? host::why_not_nice(machine) : std::strerror(error)));
    return;
  }
  report_.facts.push_back(fmt::format("lanes: nice {}", nice));
  if (nice >= 0) return;
  if (std::string told = host::set_session_nice(machine, nice); !told.empty()) {
    report_.warnings.push_back(std::move(told));
  }
}

Result<void> Daemon::measure_cores() {
  for (std::uint8_t lane = 0; lane < datapath_->lanes(); ++lane) {
    const unsigned lcore = threads_->lcore(lane);
    const auto cores = cores_of_lcore(lcore);
    if (!cores) return tl::unexpected(cores.error());
    const int node = datapath_->ports().front()->socket();
    report_core(lane, lcore, *cores, node, report_);
    isolation_.push_back(
        fmt::format("{}", fmt::join(host::isolation_problems(*cores, node), "; ")));
    if (config_.daemon.require_isolated && !isolation_.back().empty()) {
      return fail(
          ErrorCode::kUnsupported,
          fmt::format("daemon.require_isolated = true, but lane {} on lcore {} shares its core: {}",
                      lane, lcore, isolation_.back()));
    }
    if (config_.lanes.polling == "busy" && !isolation_.back().empty()) {
      report_.warnings.push_back(fmt::format(
          "lane {}: lanes.polling = busy, but its core is not isolated. Each other process on it, "
          "above all another busy lane, takes the core for milliseconds, and ops wait that long: "
          "give the lane an isolated core or set lanes.polling = adaptive",
          lane));
    }
  }
  return {};
}

}  // namespace gradwire::gradwired
