// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The whole daemon: starts, runs and stops datapath, lanes' threads and control plane. The main
/// thread (main lcore) owns it and makes every call.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/longest_rounds.h"
#include "base/result.h"
#include "config/daemon_config.h"
#include "control/lanes/datapath_lanes.h"
#include "control/lanes/datapath_reports.h"
#include "control/lanes/gpu_lanes.h"
#include "control/manager.h"
#include "host/examine.h"
#include "host/notify.h"
#include "ipc/closers.h"
#include "ipc/control_server.h"
#include "lane/clock.h"
#include "lane/datapath.h"
#include "lane/lane_threads.h"
#include "metrics/capture.h"
#include "metrics/metrics_server.h"
#include "metrics/status_board.h"
#include "port/xdp/xdp_steering.h"
#include "report.h"

namespace gradwire::gradwired {

/// Closes the device in the EAL too.
struct CloseGpu {
  void operator()(reduce::GpuDevice* device) const noexcept {
    device->close();
    delete device;
  }
};

class Daemon {
 public:
  /// Opens and examines ports, and starts lanes. The EAL must have started.
  /// @param server owned by the daemon from now on; run() also serves clients that have connected
  /// already.
  /// @param steering  of the af_xdp ports; outlives the daemon.
  /// @param keys      as read_keys() gives them.
  [[nodiscard]] static Result<std::unique_ptr<Daemon>> start(
      const config::DaemonConfig& config, std::unique_ptr<ipc::ControlServer> server,
      port::XdpSteering& steering, control::ClusterKeysPtr keys);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// One line for those who wait until the daemon is ready.
  [[nodiscard]] std::string ready_line() const;

  /// Serves until `signals` (how often the daemon was told to stop) is not 0, then stops: members
  /// may leave, then remaining groups abort, all within the configured times. At 2 it waits for
  /// nobody.
  /// @return an error if a lane does not stop, or a kernel of the GPU hangs: both may still use
  /// what the destructor frees.
  [[nodiscard]] Result<void> run(const std::atomic<int>& signals);

 private:
  explicit Daemon(const config::DaemonConfig& config) : config_(config) {}
  [[nodiscard]] Result<void> open_gpu();
  [[nodiscard]] Result<void> open_datapath();
  [[nodiscard]] Result<void> open_gpu_lanes();
  void open_capture();
  [[nodiscard]] Result<void> measure();
  [[nodiscard]] Result<void> measure_cores();
  void prioritize_lanes();
  [[nodiscard]] host::Subject host_subject() const;
  [[nodiscard]] Result<void> start_operating();
  [[nodiscard]] Result<void> start_control(std::unique_ptr<ipc::ControlServer> server,
                                           control::ClusterKeysPtr keys);
  void on_message(ipc::ConnectionId connection, const ipc::PeerCredentials& peer,
                  ipc::Message& message);
  [[nodiscard]] status::Lane lane_facts(std::uint8_t lane) const;
  void serve(const std::atomic<int>& signals);
  [[nodiscard]] std::vector<host::Duty> duties() const;
  void feed_watchdog(TimeNs now);
  /// The control thread's rounds begin when it has slept, and end when it sleeps again.
  void end_round(TimeNs began);

  config::DaemonConfig config_;  ///< as in effect: nothing in it is "auto" once the ports are open
  lane::TscClock clock_;
  host::ServiceManager service_ = host::ServiceManager::from_environment();
  bool duties_stand_ = false;  ///< some stand still, and this was logged
  LongestRounds rounds_;
  std::uint64_t polled_steps_ = 0;  ///< of the manager in its poll(), so far
  std::uint64_t ended_steps_ = 0;   ///< all steps of rounds that have ended
  Report report_;
  std::optional<metrics::Capture> capture_;  ///< none: not configured
  std::vector<std::string> isolation_;       ///< by lane: "" or what is wrong
  // Destroyed from the last to the first: the server hangs up, the manager destroys its groups, and
  // only then come the lanes and ports that the groups' packets came from.
  std::unique_ptr<reduce::GpuDevice, CloseGpu> gpu_device_;  ///< nullptr: the CPU reduces
  std::unique_ptr<lane::Datapath> datapath_;
  std::unique_ptr<lane::LaneThreads> threads_;
  std::unique_ptr<control::GpuLanes> gpu_;
  control::HostMemory host_memory_;  ///< used if there is no GPU
  std::unique_ptr<control::DatapathLanes> lanes_;
  std::unique_ptr<control::DatapathReports> reports_;
  std::unique_ptr<ipc::Closers> closers_;
  std::unique_ptr<ipc::ControlServer> server_;
  std::unique_ptr<ipc::Worker> worker_;
  std::unique_ptr<control::Manager> manager_;
  std::shared_ptr<metrics::StatusBoard> board_ = std::make_shared<metrics::StatusBoard>();
  std::unique_ptr<metrics::MetricsServer> metrics_;  ///< nullptr: not configured
};

/// @return options of the control socket: its directory is made if it is missing.
[[nodiscard]] Result<ipc::ControlServerOptions> control_server_options(
    const config::DaemonConfig& config);

}  // namespace gradwire::gradwired
