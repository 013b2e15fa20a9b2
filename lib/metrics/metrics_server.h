// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Prometheus' metrics over HTTP, on a loopback address: whoever may reach it may read them, so it
/// is not for the network (a scraper on the host, or a proxy with authentication, is). It has
/// threads of its own, which ask the control thread by the StatusBoard.
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
