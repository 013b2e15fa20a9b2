// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// From the configuration's words to those of the libraries. Pure functions; main thread; allocate.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "collective/shard.h"
#include "config/daemon_config.h"
#include "control/options.h"
#include "lane/polling.h"
#include "port/port.h"
#include "port/xdp_steering.h"
#include "reduce/gpu/device.h"

namespace gradwire::gradwired {

[[nodiscard]] port::PortConfig port_config(const config::PortSection& port,
                                           std::span<const config::RouteSection> routes);
/// What this port does wrong on purpose: nothing, but for tests.
[[nodiscard]] FaultSettings fault_settings(const config::FaultsSection& faults,
                                           const config::PortSection& port);
/// What of an af_xdp port's traffic is ours, as far as it is known before the EAL starts.
[[nodiscard]] std::vector<port::XdpPort> xdp_ports(const config::DaemonConfig& config);
/// @param name  of daemon.socket_group.
[[nodiscard]] Result<gid_t> group_id(const std::string& name);
/// A sentence for each port whose address the kernel has too, on a link that it may see.
[[nodiscard]] std::vector<std::string> address_warnings(const config::DaemonConfig& config);
[[nodiscard]] lane::PollingConfig polling_config(const config::LanesSection& lanes);
[[nodiscard]] control::Limits group_limits(const config::DaemonConfig& config);

/// What ranks must have in common beside what the table says: the eager allowance, since a sender
/// uses what the receiver has to hold, and what is exchanged, which both ends have to know.
[[nodiscard]] std::uint32_t features(const config::DaemonConfig& config);

/// @param worker_lcores  all but the main one.
/// @return how many lanes there are, or why not so many.
[[nodiscard]] Result<std::uint8_t> lane_count(const config::DaemonConfig& config,
                                              unsigned worker_lcores);

/// The EAL has made the ports' devices.
/// @return why payloads cannot lie in GPU memory here, whatever the GPU; empty if they can.
[[nodiscard]] std::string why_no_gpudirect(const config::DaemonConfig& config);
[[nodiscard]] reduce::GpuOptions gpu_options(const config::GpuSection& gpu);

/// All of a shard's configuration that is the same for every group of this daemon.
[[nodiscard]] collective::ShardConfig shard_config(const config::DaemonConfig& config,
                                                   std::uint32_t payload);

}  // namespace gradwire::gradwired
