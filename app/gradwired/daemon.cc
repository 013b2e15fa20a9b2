// SPDX-License-Identifier: BSD-3-Clause
#include "daemon.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "host/output.h"
#include "ipc/bus_guard.h"
#include "metrics/dpdk_telemetry.h"
#include "port/eal.h"
#include "reduce/gpu/batch.h"
#include "settings.h"

namespace gradwire::gradwired {
namespace {

/// The longest sleep of the control thread. The manager's time limits and ARP retries are far
/// longer, and anything urgent wakes it.
constexpr int kSleepMs = 20;
constexpr TimeNs kLaneStopNs = 2'000'000'000;
/// Connections reserved for the operator's tools, which make one request each.
constexpr std::size_t kReservedForRoot = 8;

std::vector<control::StaticNeighbor> static_neighbors(const config::DaemonConfig& config) {
  std::vector<control::StaticNeighbor> out;
  for (const config::NeighborSection& neighbor : config.neighbors) {
    // The configuration holds canonical text, so both parse.
    out.push_back({wire::parse_ip(neighbor.ip).value(), wire::parse_mac(neighbor.mac).value()});
  }
  return out;
}

}  // namespace

Result<ipc::ControlServerOptions> control_server_options(const config::DaemonConfig& config) {
  ipc::ControlServerOptions options(config.daemon, config.limits, config.timeouts);
  options.path = config.daemon.control_socket;
  options.reserved_for_root = kReservedForRoot;
  const std::string directory = options.path.substr(0, options.path.rfind('/'));
  constexpr mode_t kDirectoryMode = 0755;
  if (directory.size() < options.path.size() && !directory.empty() &&
      mkdir(directory.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
    return fail(ErrorCode::kSystem,
                fmt::format("daemon.control_socket = {}: its directory could not be created: {}",
                            options.path, std::strerror(errno)));
  }
  if (!config.daemon.socket_group.empty()) {
    const auto group = group_id(config.daemon.socket_group);
    if (!group) return tl::unexpected(group.error());
    options.group = *group;
  }
  return options;
}

Result<std::unique_ptr<Daemon>> Daemon::start(const config::DaemonConfig& config,
                                              std::unique_ptr<ipc::ControlServer> server,
                                              port::XdpSteering& steering,
                                              control::ClusterKeysPtr keys) {
  std::unique_ptr<Daemon> daemon(new Daemon(config));
  if (auto guarded = ipc::install_bus_guard(); !guarded) return tl::unexpected(guarded.error());
  if (auto opened = daemon->open_gpu(); !opened) return tl::unexpected(opened.error());
  if (auto opened = daemon->open_datapath(); !opened) return tl::unexpected(opened.error());
  if (auto written = steering.write_record(); !written) return tl::unexpected(written.error());
  daemon->report_.facts = steering.facts();
  daemon->report_.warnings = steering.warnings();
  for (std::string& warning : address_warnings(config)) {
    daemon->report_.warnings.push_back(std::move(warning));
  }
  if (auto opened = daemon->open_gpu_lanes(); !opened) return tl::unexpected(opened.error());
  if (config.daemon.capture) daemon->open_capture();
  if (auto measured = daemon->measure(); !measured) return tl::unexpected(measured.error());
  if (auto started = daemon->start_control(std::move(server), std::move(keys)); !started) {
    return tl::unexpected(started.error());
  }
  if (auto started = daemon->start_operating(); !started) return tl::unexpected(started.error());
  if (auto started = daemon->threads_->start(); !started) return tl::unexpected(started.error());
  return daemon;
}

Daemon::~Daemon() {
  board_->close();
  metrics_.reset();
  if (threads_ != nullptr) threads_->stop(kLaneStopNs);
  worker_.reset();   // first: the manager then takes apart what the worker had begun
  manager_.reset();  // tells the server, its sink, that its clients have gone
}

Result<void> Daemon::open_datapath() {
  const auto lanes =
      lane_count(config_, static_cast<unsigned>(lane::LaneThreads::worker_lcores().size()));
  if (!lanes) return tl::unexpected(lanes.error());
  lane::DatapathConfig datapath;
  for (const config::PortSection& port : config_.ports) {
    datapath.ports.push_back(port_config(port, config_.routes));
    datapath.ports.back().faults = fault_settings(config_.faults, port);
  }
  datapath.lanes = *lanes;
  datapath.base_udp_port = static_cast<std::uint16_t>(config_.lanes.base_udp_port);
  datapath.max_groups = static_cast<std::uint16_t>(config_.limits.groups);
  datapath.max_transfer_groups = static_cast<std::uint16_t>(config_.limits.transfer_groups);
  datapath.mbufs_per_shard = [this](std::uint32_t payload) {
    return collective::packet_mbufs_needed(shard_config(config_, payload));
  };
  datapath.max_payload_bytes = static_cast<std::uint32_t>(config_.transport.payload_bytes);
  datapath.payload_crc = shard_config(config_, 0).payload_crc;
  datapath.polling = polling_config(config_.lanes);
  if (gpu_device_ != nullptr && gpu_device_->path() == reduce::PayloadPath::kGpuDirect) {
    datapath.payload_memory = gpu_device_.get();
  }
  auto opened = lane::Datapath::create(datapath);
  if (!opened && datapath.payload_memory != nullptr && config_.gpu.staging == "auto") {
    // Whether a mempool in GPU memory and DMA to it are possible shows only when it is made.
    if (auto next = gpu_device_->fall_back(opened.error().message); !next) return next;
    datapath.payload_memory = nullptr;
    opened = lane::Datapath::create(datapath);
  }
  if (!opened) return tl::unexpected(opened.error());
  datapath_ = std::move(*opened);
  threads_ = std::make_unique<lane::LaneThreads>(*datapath_);

  config_.lanes.count = *lanes;
  const collective::ShardConfig shard = shard_config(config_, datapath_->max_payload_bytes());
  config_.transport.payload_bytes = shard.payload_bytes;
  config_.transport.window_packets = shard.window_packets;
  config_.transport.transit_packets = shard.transit_packets;
  for (std::size_t i = 0; i < config_.ports.size(); ++i) {
    config_.ports[i].mtu = datapath_->ports()[i]->limits().mtu;
  }
  return {};
}

Result<void> Daemon::open_gpu() {
  if (config_.gpu.device.empty()) return {};
  reduce::GpuOptions options(config_.gpu);
  options.why_no_gpudirect = why_no_gpudirect(config_);
  auto opened = reduce::GpuDevice::open(options);
  if (!opened) return tl::unexpected(opened.error());
  gpu_device_.reset(opened->release());
  return {};
}

Result<void> Daemon::open_gpu_lanes() {
  if (gpu_device_ == nullptr) return {};
  auto opened = control::GpuLanes::open(*gpu_device_, *datapath_);
  if (!opened) return tl::unexpected(opened.error());
  gpu_ = std::move(*opened);
  return {};
}

void Daemon::open_capture() {
  capture_.emplace(metrics::Capture::start(port::shared_runtime_folder()));
  (capture_->available() ? report_.facts : report_.warnings).push_back(capture_->text());
}

Result<void> Daemon::start_control(std::unique_ptr<ipc::ControlServer> server,
                                   control::ClusterKeysPtr keys) {
  control::PlanSettings settings(config_.transport);
  settings.shard = shard_config(config_, datapath_->max_payload_bytes());
  settings.base_udp_port = static_cast<std::uint16_t>(config_.lanes.base_udp_port);
  const auto neighbors = static_neighbors(config_);
  lanes_ = std::make_unique<control::DatapathLanes>(*datapath_, settings, neighbors, gpu_.get());
  reports_ = std::make_unique<control::DatapathReports>(
      *datapath_, *lanes_, [this](std::uint8_t lane) { return lane_facts(lane); });
  control::ClientMemory* memory = &host_memory_;
  if (gpu_ != nullptr) memory = gpu_.get();

  const auto incarnation = control::random_incarnation();
  if (!incarnation) return tl::unexpected(incarnation.error());
  const auto secret = control::random_secret();
  if (!secret) return tl::unexpected(secret.error());
  control::ManagerOptions options;
  options.daemon.version = GRADWIRE_VERSION;
  options.daemon.incarnation = *incarnation;
  options.daemon.secret = *secret;
  options.daemon.max_payload_bytes = datapath_->max_payload_bytes();
  options.daemon.features = features(config_);
  options.daemon.base_udp_port = settings.base_udp_port;
  options.daemon.direct_kib = static_cast<std::uint16_t>(config_.transport.direct_kib);
  options.daemon.two_step_kib = static_cast<std::uint16_t>(config_.transport.two_step_kib);
  options.daemon.two_step_owner = config_.transport.two_step_owner;
  options.daemon.gathered_kib = static_cast<std::uint16_t>(config_.transport.gathered_kib);
  options.daemon.gathered_ranks = static_cast<std::uint16_t>(config_.transport.gathered_ranks);
  options.daemon.tiles = gpu_ == nullptr;
  options.daemon.tiles_wanted = control::tiles_wanted(config_.transport.tiles);
  options.daemon.packet_ns = static_cast<std::uint16_t>(config_.transport.packet_ns);
  options.daemon.byte_ps = static_cast<std::uint16_t>(config_.transport.byte_ps);
  options.daemon.hop_ns = static_cast<std::uint32_t>(config_.transport.hop_ns);
  options.daemon.fold_sources = gpu_ == nullptr ? kMaxRanks : reduce::Batch::kSourcesMax;
  options.daemon.folding = gpu_ == nullptr ? 2 : 1;
  options.daemon.source_ports = control::source_ports_of(*datapath_);
  options.daemon.transfers = gpu_ == nullptr || gpu_->has_transfers();
  options.daemon.numa_node = datapath_->ports().front()->socket();
  options.daemon.datapath = report_.facts;
  options.daemon.warnings = report_.warnings;
  options.limits = control::Limits(config_.limits, config_.timeouts);
  const bool gpudirect =
      gpu_device_ != nullptr && gpu_device_->path() == reduce::PayloadPath::kGpuDirect;
  options.keys = key_options(config_, std::move(keys), datapath_->max_payload_bytes(), gpudirect);
  options.facts = [this](status::Daemon& daemon) {
    const LongestRounds::Round longest = rounds_.longest(clock_.now());
    daemon.control_round_us_max = static_cast<std::uint64_t>(longest.ns / 1'000);
    daemon.control_round_steps_max = longest.steps;
    daemon.log_lines_dropped = host::standard_error().dropped();
    for (const auto& [uid, user] : server_->user_steps().users()) {
      daemon.users.push_back({uid, user.steps, user.waits, user.waiting});
      if (!user.waiting) continue;
      daemon.warnings.push_back(fmt::format(
          "user {} has used up its share of the control thread: its requests wait", uid));
    }
  };
  options.charge = [this](uid_t uid, std::uint64_t steps) { server_->charge(uid, steps); };
  options.hugepages = [node = options.daemon.numa_node] { return ipc::read_hugepages(node); };

  closers_ = std::make_unique<ipc::Closers>([this] { datapath_->wake_control(); });
  server_ = std::move(server);
  server_->set_closers(closers_.get());
  worker_ = std::make_unique<ipc::ThreadWorker>([this] { datapath_->wake_control(); });
  manager_ = std::make_unique<control::Manager>(options, *lanes_, *memory, *reports_, *server_,
                                                clock_.now(), worker_.get(), closers_.get());
  server_->set_callbacks({
      [this](ipc::ConnectionId connection, const ipc::PeerCredentials& peer,
             ipc::Message& message) { on_message(connection, peer, message); },
      [this](ipc::ConnectionId connection) { manager_->on_hangup(connection, clock_.now()); },
      [](const std::string& text) { spdlog::warn("{}", text); },
      [this] { return manager_->steps(); },
  });
  server_->set_wake_fd(datapath_->event_fd());
  return {};
}

void Daemon::on_message(ipc::ConnectionId connection, const ipc::PeerCredentials& peer,
                        ipc::Message& message) {
  manager_->on_message(connection, peer, message, clock_.now());
  // It may have had a job's key.
  if (message.type() == ipc::MessageType::kDescribe) security::clear(message.body);
}

Result<void> Daemon::start_operating() {
  if (auto registered = metrics::register_dpdk_telemetry(board_); !registered) return registered;
  if (config_.daemon.metrics.empty()) return {};
  auto started = metrics::MetricsServer::start(config_.daemon.metrics, board_);
  if (!started) return tl::unexpected(started.error());
  metrics_ = std::move(*started);
  spdlog::info("metrics at http://{}/metrics", config_.daemon.metrics);
  return {};
}

status::Lane Daemon::lane_facts(std::uint8_t lane) const {
  status::Lane out;
  out.lane = lane;
  out.lcore = threads_->lcore(lane);
  out.polling = config_.lanes.polling;
  if (const auto nice = threads_->nice(lane)) out.nice = *nice;
  out.isolated = isolation_[lane].empty();
  out.isolation_problems = isolation_[lane];
  if (const auto switches = host::read_involuntary_switches(threads_->thread_id(lane))) {
    out.involuntary_switches = *switches;
  }
  for (const auto& port : datapath_->ports()) {
    const port::PortReport report = port->report();
    out.ports.push_back({report.device, report.driver, report.link});
  }
  out.mempool_ops = datapath_->pools(lane).ops();
  out.packet_mbufs_free = rte_mempool_avail_count(datapath_->pools(lane).packet());
  return out;
}

std::string Daemon::ready_line() const {
  std::vector<std::string> addresses;
  for (const config::PortSection& port : config_.ports) {
    addresses.push_back(fmt::format("{} on {}", port.ip, port.device));
  }
  return fmt::format("gradwired ready: {} at {}, {} lane{}, chunks of {} bytes, {}",
                     config_.daemon.name, config_.daemon.control_socket, datapath_->lanes(),
                     datapath_->lanes() == 1 ? "" : "s", datapath_->max_payload_bytes(),
                     fmt::join(addresses, ", "));
}

std::vector<host::Duty> Daemon::duties() const {
  std::vector<host::Duty> duties;
  for (const std::uint64_t rounds : datapath_->lane_rounds()) {
    duties.push_back({fmt::format("lane {}", duties.size()), rounds});
  }
  const control::Manager::Progress manager = manager_->progress();
  const ipc::Worker::Progress worker = worker_->progress();
  duties.push_back({"clients' messages", server_->served(), server_->has_more()});
  duties.push_back({"notices of lanes", manager.notices, manager.notices_wait});
  duties.push_back({"requests to lanes", manager.requests_sent, manager.requests_wait});
  duties.push_back({"memory and texts", worker.pieces, worker.hangs});
  return duties;
}

void Daemon::feed_watchdog(TimeNs now) {
  if (!service_.is_due(now)) return;
  const auto standing = service_.feed(now, duties());
  if (!standing.empty() && !duties_stand_) {
    spdlog::error(
        "{} does not run. If it is a lane, its port's driver hangs, or its core runs something "
        "else. The daemon does not feed the service manager's watchdog until it runs again",
        fmt::join(standing, ", "));
  }
  duties_stand_ = !standing.empty();
}

void Daemon::end_round(TimeNs began) {
  const TimeNs now = clock_.now();
  const std::uint64_t steps = server_->steps() + polled_steps_;
  rounds_.record(now, now - began, steps - ended_steps_);
  ended_steps_ = steps;
}

void Daemon::serve(const std::atomic<int>& signals) {
  bool stopping = false;
  service_.ready(ready_line());
  TimeNs began = clock_.now();
  while (true) {
    const int told = signals.load(std::memory_order_relaxed);
    // Anything that a lane enqueues after this wakes the wait below.
    datapath_->set_sleeping(true);
    const TimeNs now = clock_.now();
    const std::uint64_t before = manager_->steps();
    lanes_->poll(now);
    manager_->poll(now);
    feed_watchdog(now);
    board_->serve([&] { return manager_->status(now); });
    if (told > 0 && !stopping) {
      service_.stopping();
      manager_->begin_stop(now);
      stopping = true;
    }
    polled_steps_ += manager_->steps() - before;
    host::standard_error().flush();
    host::standard_output().flush();
    if (stopping && (told > 1 || manager_->stopped(now))) break;
    end_round(began);
    server_->wait(manager_->has_more() ? 0 : kSleepMs);
    began = clock_.now();
    datapath_->set_sleeping(false);
    server_->serve();
  }
  datapath_->set_sleeping(false);
  server_->poll(0);  // the last replies
}

Result<void> Daemon::run(const std::atomic<int>& signals) {
  serve(signals);
  if (const std::string left = manager_->leftovers(); !left.empty()) {
    spdlog::warn("stopped before all was closed: {}", left);
  }
  if (!threads_->stop(kLaneStopNs)) {
    return fail(ErrorCode::kInternal, "a lane did not stop within 2 s: its port's driver hangs");
  }
  if (gpu_ != nullptr) return gpu_->stop();
  return {};
}

}  // namespace gradwire::gradwired
