// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What of the configuration becomes the libraries' structs only together with something else: a
/// file's text, another section, the EAL. The structs' own constructors make the rest of their
/// sections (base/sections.h). Pure functions; main thread; they allocate.
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
#include "port/xdp/xdp_steering.h"
#include "reduce/gpu/device.h"

namespace gradwire::gradwired {

[[nodiscard]] port::PortConfig port_config(const config::PortSection& port,
                                           std::span<const config::RouteSection> routes);
/// The faults that this port injects; none except in tests.
[[nodiscard]] FaultSettings fault_settings(const config::FaultsSection& faults,
                                           const config::PortSection& port);
/// Which traffic of af_xdp ports is the daemon's, as far as it is known before the EAL starts.
[[nodiscard]] std::vector<port::XdpPort> xdp_ports(const config::DaemonConfig& config);
/// @param name the value of daemon.socket_group.
[[nodiscard]] Result<gid_t> group_id(const std::string& name);
/// A warning for each port whose IP address the kernel has too, if the kernel may see the port's
/// link.
[[nodiscard]] std::vector<std::string> address_warnings(const config::DaemonConfig& config);
[[nodiscard]] lane::PollingConfig polling_config(const config::LanesSection& lanes);

/// What all ranks must have in common besides the fields of the table: the eager allowance, since a
/// sender uses what the receiver must hold, and the limit for exchanges, which both ends must
/// apply.
[[nodiscard]] std::uint32_t features(const config::DaemonConfig& config);

/// @param worker_lcores  all but the main one.
/// @return how many lanes there are, or why there cannot be that many.
[[nodiscard]] Result<std::uint8_t> lane_count(const config::DaemonConfig& config,
                                              unsigned worker_lcores);

/// Call it when the EAL has created the ports' devices.
/// @return why payloads cannot lie in GPU memory here, whatever the GPU; empty if they can.
[[nodiscard]] std::string why_no_gpudirect(const config::DaemonConfig& config);

/// What the files of [security] hold. @return an error that names the file and what is wrong with
/// it.
[[nodiscard]] Result<control::ClusterKeysPtr> read_keys(const config::SecuritySection& keys);
/// @param config       whose ports' MTUs are known.
/// @param max_payload  of packets that are not sealed.
/// @param gpudirect    payloads stay in GPU memory.
[[nodiscard]] control::KeyOptions key_options(const config::DaemonConfig& config,
                                              control::ClusterKeysPtr keys,
                                              std::uint32_t max_payload, bool gpudirect);

/// The part of a shard's configuration that is the same for every group of this daemon.
[[nodiscard]] collective::ShardConfig shard_config(const config::DaemonConfig& config,
                                                   std::uint32_t payload);

}  // namespace gradwire::gradwired
