// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Serves Prometheus metrics over HTTP on a loopback address. There is no authentication, so it
/// must not be reachable from the network; use a scraper on the host or an authenticating proxy. It
/// has a thread of its own, which asks the control thread through the StatusBoard and waits for no
/// connection: those that say nothing keep nobody waiting.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "metrics/status_board.h"

namespace gradwire::metrics {

class MetricsServer {
 public:
  /// @param address  "127.0.0.1:9464" or "[::1]:9464"; port 0 takes a free one.
  [[nodiscard]] static Result<std::unique_ptr<MetricsServer>> start(
      const std::string& address, std::shared_ptr<StatusBoard> board);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  [[nodiscard]] int port() const;

 private:
  class Impl;
  explicit MetricsServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire::metrics
