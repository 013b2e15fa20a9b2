// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How other threads of the daemon (DPDK's telemetry, the metrics' HTTP server) get the status:
/// they ask, and the control thread, the only one that may access its objects, answers in its next
/// round. Control plane only; it locks and allocates.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "status/daemon_status.h"

namespace gradwire::metrics {

class StatusBoard {
 public:
  /// Any thread but the control thread. Threads that ask at the same time share an answer.
  /// @return nullptr if no answer came within `timeout`: the daemon is busy, or stops.
  [[nodiscard]] std::shared_ptr<const status::DaemonStatus> ask(std::chrono::milliseconds timeout);
  /// Control thread, every round. Calls `make` if somebody asks.
  void serve(const std::function<status::DaemonStatus()>& make);
  /// Control thread: it stops answering. Whoever waits, or asks later, gets nullptr at once.
  void close();

 private:
  std::mutex mutex_;
  std::condition_variable answered_;
  std::uint64_t asked_ = 0;
  std::uint64_t served_ = 0;
  bool closed_ = false;
  std::shared_ptr<const status::DaemonStatus> status_;
};

}  // namespace gradwire::metrics
