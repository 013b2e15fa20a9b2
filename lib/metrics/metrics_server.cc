// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/metrics_server.h"

#include <fmt/format.h>
#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <chrono>
#include <exception>
#include <utility>

#include "metrics/metrics.h"

namespace gradwire::metrics {
namespace {

/// Below Prometheus' usual timeout of 10 s.
constexpr std::chrono::milliseconds kScrapePatience{4000};

bool is_loopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host.starts_with("127.") || host == "[::1]";
}

}  // namespace

class MetricsServer::Impl {
 public:
  Impl(const std::string& address, std::shared_ptr<StatusBoard> board)
      : collector_(std::make_shared<Collector>(std::move(board))), exposer_(address, 2) {
    exposer_.RegisterCollectable(collector_);
  }

  class Collector final : public prometheus::Collectable {
   public:
    explicit Collector(std::shared_ptr<StatusBoard> board) : board_(std::move(board)) {}
    [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override {
      const auto status = board_->ask(kScrapePatience);
      if (!status) return {};
      return metrics_of(*status);
    }

   private:
    std::shared_ptr<StatusBoard> board_;
  };

  std::shared_ptr<Collector> collector_;
  prometheus::Exposer exposer_;
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            std::shared_ptr<StatusBoard> board) {
  if (address.rfind(':') == std::string::npos || !is_loopback(address)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("daemon.metrics = {}: must be a loopback address with a port, such as "
                            "127.0.0.1:9464, because there is no authentication",
                            address));
  }
  try {
    return std::unique_ptr<MetricsServer>(
        new MetricsServer(std::make_unique<Impl>(address, std::move(board))));
  } catch (const std::exception& error) {
    return fail(
        ErrorCode::kSystem,
        fmt::format("daemon.metrics = {}: starting the server failed: {}", address, error.what()));
  }
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const {
  const auto ports = impl_->exposer_.GetListeningPorts();
  return ports.empty() ? 0 : ports.front();
}

}  // namespace gradwire::metrics
