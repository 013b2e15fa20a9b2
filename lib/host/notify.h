// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What systemd is told of the daemon: that it is ready, that it stops, and, for as long as every
/// lane goes round, that it is alive (sd_notify(3); a datagram, so no library is needed). Without a
/// service manager it does nothing. Control thread; system calls, allocates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/types.h"

namespace gradwire::host {

class ServiceManager {
 public:
  /// From $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID.
  [[nodiscard]] static ServiceManager from_environment();
  /// @param socket       a path, or '@' and an abstract name; "": nobody listens.
  /// @param watchdog_ns  the service is killed when it is not fed for so long; 0: no watchdog.
  explicit ServiceManager(std::string socket = {}, TimeNs watchdog_ns = 0);

  [[nodiscard]] bool listens() const { return !socket_.empty(); }
  [[nodiscard]] TimeNs watchdog_ns() const { return watchdog_ns_; }

  /// @param status  what `systemctl status` shows.
  void ready(const std::string& status) const;
  void stopping() const;

  /// Whether it is time for feed(): four times within the watchdog's limit.
  [[nodiscard]] bool is_due(TimeNs now) const;
  /// Feeds the watchdog if each number moved since the last call.
  /// @param heartbeats  of each lane; as many on each call.
  /// @return the lanes that stand still: while there are any it is not fed.
  std::vector<std::size_t> feed(TimeNs now, std::span<const std::uint64_t> heartbeats);

 private:
  void send(const std::string& message) const;

  std::string socket_;
  TimeNs watchdog_ns_;
  TimeNs last_feed_ns_ = 0;
  bool fed_ = false;
  std::vector<std::uint64_t> heartbeats_;
};

}  // namespace gradwire::host
