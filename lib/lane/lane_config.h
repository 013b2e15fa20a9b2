// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a lane is made from. Plain data; the control thread fills it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/sip_hash.h"
#include "command/links.h"
#include "lane/polling.h"
#include "port/payload_pool.h"
#include "port/port.h"

namespace gradwire::lane {

struct LaneConfig {
  std::uint8_t lane = 0;
  std::uint8_t lanes = 1;                       ///< how many lanes share each port's rate
  std::uint16_t udp_port = 0;                   ///< this lane's: the daemon's base port + lane
  std::vector<const port::Port*> ports;         ///< started; queue `lane` of each is this lane's
  const port::PayloadPool* payloads = nullptr;  ///< where ports split payloads off
  command::LaneRings rings;
  command::SharedRings shared;
  SipHashKey hash_secret;     ///< random, so that nobody can choose keys that collide
  bool command_lane = false;  ///< takes the clients' commands: lane 0 of a daemon
  std::vector<command::LaneRings>
      all_lanes;  ///< command lane only: every lane's rings, to pass ops to the lanes
  std::uint16_t max_groups = 64;
  PollingConfig polling;
  std::size_t tx_trace_bursts = 0;  ///< how many bursts are remembered for each port; 0 = none
};

}  // namespace gradwire::lane
