// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Tells systemd that the daemon is ready, that it stops, and, as long as every lane and every duty
/// of the control thread makes progress, that it is alive (sd_notify(3); a datagram, so no library
/// is needed). Without a service manager it does nothing. Control thread; system calls, allocates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/types.h"

namespace gradwire::host {

/// Something that has to go on: a lane, or what the control thread does for clients and lanes.
struct Duty {
  std::string name;
  std::uint64_t done = 0;  ///< so far
  bool waits = true;       ///< there is something to do
};

class ServiceManager {
 public:
  /// From $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID.
  [[nodiscard]] static ServiceManager from_environment();
  /// @param socket       a path, or '@' and an abstract name; "": no service manager.
  /// @param watchdog_ns  after this long without feed() the service is killed; 0: no watchdog.
  explicit ServiceManager(std::string socket = {}, TimeNs watchdog_ns = 0);

  [[nodiscard]] bool listens() const { return !socket_.empty(); }
  [[nodiscard]] TimeNs watchdog_ns() const { return watchdog_ns_; }

  /// @param status  what `systemctl status` shows.
  void ready(const std::string& status) const;
  void stopping() const;

  /// Whether feed() is due; it is four times within the watchdog's limit.
  [[nodiscard]] bool is_due(TimeNs now) const;
  /// Feeds the watchdog if no duty stands still: one does that had something to do at the last call
  /// and has now, and has done nothing in between.
  /// @param duties  the same ones on each call, in the same order.
  /// @return the names of those that stand; if there are any, the watchdog is not fed.
  std::vector<std::string> feed(TimeNs now, std::vector<Duty> duties);

 private:
  void send(const std::string& message) const;

  std::string socket_;
  TimeNs watchdog_ns_;
  TimeNs last_feed_ns_ = 0;
  bool fed_ = false;
  std::vector<Duty> duties_;  ///< of the last call
};

}  // namespace gradwire::host
