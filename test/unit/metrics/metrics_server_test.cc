// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <string>
#include <thread>

namespace gradwire::metrics {
namespace {

std::string get(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  const std::string request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  REQUIRE(::write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t got = ::read(fd, buffer, sizeof buffer); got > 0;
       got = ::read(fd, buffer, sizeof buffer)) {
    answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(fd);
  return answer;
}

}  // namespace

TEST_CASE("metrics are served on loopback, as the control thread answers") {
  const auto board = std::make_shared<StatusBoard>();
  const auto server = MetricsServer::start("127.0.0.1:0", board);
  REQUIRE(server);
  std::atomic<bool> stop{false};
  std::thread control([&] {
    while (!stop) {
      board->serve([] {
        status::DaemonStatus status;
        status.daemon.version = "9.9";
        return status;
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const std::string answer = get((*server)->port());
  stop = true;
  control.join();
  CHECK_THAT(answer, Catch::StartsWith("HTTP/1.1 200"));
  CHECK_THAT(answer, Catch::Contains("# TYPE gradwire_build_info gauge"));
  CHECK_THAT(answer, Catch::Contains("gradwire_build_info{version=\"9.9\"} 1"));
}

TEST_CASE("an address of the network is refused, one that is taken too") {
  const auto board = std::make_shared<StatusBoard>();
  for (const char* address : {"0.0.0.0:0", "10.0.0.1:9464", "9464", "localhost:9464", ""}) {
    const auto refused = MetricsServer::start(address, board);
    INFO(address);
    REQUIRE_FALSE(refused);
    CHECK_THAT(refused.error().message, Catch::Contains("must be a loopback address"));
  }
  const auto first = MetricsServer::start("127.0.0.1:0", board);
  REQUIRE(first);
  const auto second = MetricsServer::start("127.0.0.1:" + std::to_string((*first)->port()), board);
  REQUIRE_FALSE(second);
  CHECK_THAT(second.error().message, Catch::Contains("starting the server failed"));
}

}  // namespace gradwire::metrics
