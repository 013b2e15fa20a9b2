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
#include <vector>

namespace gradwire::metrics {
namespace {

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

std::string get(int port, const std::string& line = "GET /metrics HTTP/1.1") {
  const int fd = connect_to(port);
  const std::string request = line + "\r\nHost: x\r\nConnection: close\r\n\r\n";
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

/// Answers as the control thread does.
class Control {
 public:
  explicit Control(StatusBoard& board)
      : thread_([this, &board] {
          while (!stop_) {
            board.serve([] {
              status::DaemonStatus status;
              status.daemon.version = "9.9";
              return status;
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}
  ~Control() {
    stop_ = true;
    thread_.join();
  }
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("connections that say nothing keep no scrape waiting") {
  const auto board = std::make_shared<StatusBoard>();
  const auto server = MetricsServer::start("127.0.0.1:0", board);
  REQUIRE(server);
  const Control control(*board);
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to((*server)->port()));
  // Else its read would end after the silent ones' time, of which the oldest made room.
  CHECK_THAT(get((*server)->port()), Catch::StartsWith("HTTP/1.1 200"));
  char byte = 0;
  CHECK(::recv(silent.front(), &byte, 1, 0) == 0);
  CHECK(::recv(silent.back(), &byte, 1, MSG_DONTWAIT) == -1);
  for (const int fd : silent) ::close(fd);
}

TEST_CASE("HEAD gets the head alone, and other paths and methods are told what there is") {
  const auto board = std::make_shared<StatusBoard>();
  const auto server = MetricsServer::start("127.0.0.1:0", board);
  REQUIRE(server);
  const Control control(*board);
  const int port = (*server)->port();
  const std::string page = get(port);
  const std::string head = get(port, "HEAD /metrics HTTP/1.1");
  CHECK_THAT(head, Catch::StartsWith("HTTP/1.1 200") && Catch::EndsWith("\r\n\r\n"));
  CHECK_THAT(page, Catch::StartsWith(head));
  CHECK_THAT(get(port, "GET /metrics?name=x HTTP/1.1"), Catch::StartsWith("HTTP/1.1 200"));
  CHECK_THAT(get(port, "GET / HTTP/1.1"), Catch::StartsWith("HTTP/1.1 404"));
  CHECK_THAT(get(port, "POST /metrics HTTP/1.1"), Catch::StartsWith("HTTP/1.1 405"));
  CHECK_THAT(get(port, "nonsense"), Catch::StartsWith("HTTP/1.1 405"));
}

TEST_CASE("a daemon that does not answer is no page without values") {
  const auto board = std::make_shared<StatusBoard>();
  const auto server = MetricsServer::start("127.0.0.1:0", board);
  REQUIRE(server);
  board->close();
  CHECK_THAT(get((*server)->port()), Catch::StartsWith("HTTP/1.1 503"));
}

TEST_CASE("metrics are served on loopback, as the control thread answers") {
  const auto board = std::make_shared<StatusBoard>();
  const auto server = MetricsServer::start("127.0.0.1:0", board);
  REQUIRE(server);
  std::string answer;
  {
    const Control control(*board);
    answer = get((*server)->port());
  }
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
