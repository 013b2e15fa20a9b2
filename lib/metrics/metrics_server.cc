// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/metrics_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <prometheus/text_serializer.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "metrics/metrics.h"

namespace gradwire::metrics {
namespace {

using Clock = std::chrono::steady_clock;

/// Below Prometheus' usual timeout of 10 s.
constexpr std::chrono::milliseconds kScrapePatience{4000};
/// From when a connection is accepted until it has got its answer.
constexpr std::chrono::seconds kConnectionMost{10};
/// Beyond it the oldest connection makes room, so that those that say nothing keep nobody out.
constexpr std::size_t kConnectionsMost = 64;
constexpr std::size_t kRequestBytesMost = 8192;

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
};

/// @return nothing if it is no loopback address with a port.
std::optional<Address> parse(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const std::string host = text.substr(0, colon);
  const std::string_view digits = std::string_view(text).substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  Address out;
  if (host == "[::1]") {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    address.sin6_port = htons(port);
    out.bytes = sizeof address;
    std::memcpy(&out.storage, &address, sizeof address);
    return out;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (!host.starts_with("127.") || ::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return std::nullopt;
  }
  out.bytes = sizeof address;
  std::memcpy(&out.storage, &address, sizeof address);
  return out;
}

}  // namespace

namespace http {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

struct Connection {
  Descriptor socket;
  Clock::time_point since;
  std::string request;
  std::string answer;  ///< what is left to send
  bool answered = false;
  bool ends = false;
};

}  // namespace http

namespace {

using http::Connection;
using http::Descriptor;

std::string answer_of(const char* status, const std::string& body, bool with_body) {
  return fmt::format(
             "HTTP/1.1 {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
             "Content-Length: {}\r\nConnection: close\r\n\r\n",
             status, body.size()) +
         (with_body ? body : std::string());
}

}  // namespace

class MetricsServer::Impl {
 public:
  Impl(Descriptor listener, Descriptor wake, int port, std::shared_ptr<StatusBoard> board)
      : listener_(std::move(listener)),
        wake_(std::move(wake)),
        port_(port),
        board_(std::move(board)),
        thread_([this] { run(); }) {}
  ~Impl() {
    const std::uint64_t one = 1;
    // It cannot fail: the counter is far from full.
    static_cast<void>(::write(wake_.get(), &one, sizeof one));
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }

 private:
  void run();
  void accept_some();
  void receive(Connection& connection);
  static void send(Connection& connection);
  /// All that have asked get the same.
  void answer_all();

  Descriptor listener_;
  Descriptor wake_;
  int port_;
  std::shared_ptr<StatusBoard> board_;
  std::list<Connection> connections_;  ///< the oldest first
  std::thread thread_;
};

void MetricsServer::Impl::run() {
  std::vector<pollfd> fds;
  while (true) {
    fds.clear();
    fds.push_back({wake_.get(), POLLIN, 0});
    fds.push_back({listener_.get(), POLLIN, 0});
    for (const Connection& connection : connections_) {
      const auto events = static_cast<short>(connection.answer.empty() ? POLLIN : POLLOUT);
      fds.push_back({connection.socket.get(), events, 0});
    }
    constexpr int kLookMs = 1'000;  // for those that take too long
    if (::poll(fds.data(), fds.size(), connections_.empty() ? -1 : kLookMs) < 0) continue;
    if (fds[0].revents != 0) return;
    std::size_t i = 2;
    for (Connection& connection : connections_) {
      const short seen = fds[i++].revents;
      if (seen == 0) continue;
      if (!connection.answer.empty())
        send(connection);
      else
        receive(connection);
    }
    answer_all();
    const Clock::time_point bound = Clock::now() - kConnectionMost;
    std::erase_if(connections_, [&](const Connection& connection) {
      return connection.ends || connection.since < bound;
    });
    if (fds[1].revents != 0) accept_some();
  }
}

void MetricsServer::Impl::accept_some() {
  constexpr int kAtOnce = 16;
  for (int i = 0; i < kAtOnce; ++i) {
    Descriptor socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) {
      // Without a descriptor for it the caller would come again at once.
      if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kScrapePatience / 40);
      return;
    }
    if (connections_.size() >= kConnectionsMost) connections_.pop_front();
    Connection& connection = connections_.emplace_back();
    connection.socket = std::move(socket);
    connection.since = Clock::now();
  }
}

void MetricsServer::Impl::receive(Connection& connection) {
  char buffer[2048];
  const ssize_t got = ::recv(connection.socket.get(), buffer, sizeof buffer, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0 || connection.answered) {
    connection.ends = got <= 0;
    return;
  }
  connection.request.append(buffer, static_cast<std::size_t>(got));
  if (connection.request.size() > kRequestBytesMost) connection.ends = true;
}

void MetricsServer::Impl::send(Connection& connection) {
  const ssize_t sent = ::send(connection.socket.get(), connection.answer.data(),
                              connection.answer.size(), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (sent < 0) {
    connection.ends = true;
    return;
  }
  connection.answer.erase(0, static_cast<std::size_t>(sent));
  if (!connection.answer.empty()) return;
  // It ends when the other end has read all and closes, or after its time.
  ::shutdown(connection.socket.get(), SHUT_WR);
}

void MetricsServer::Impl::answer_all() {
  std::optional<std::string> page;  // made if somebody wants it
  std::optional<const char*> failed;
  for (Connection& connection : connections_) {
    if (connection.answered || connection.ends) continue;
    if (connection.request.find("\r\n\r\n") == std::string::npos) continue;
    connection.answered = true;
    const std::string_view line =
        std::string_view(connection.request).substr(0, connection.request.find("\r\n"));
    const std::size_t first = line.find(' ');
    const std::string_view method = line.substr(0, first);
    std::string_view path = first == std::string_view::npos ? "" : line.substr(first + 1);
    path = path.substr(0, path.find_first_of(" ?"));
    const bool head = method == "HEAD";
    if (method != "GET" && !head) {
      connection.answer = answer_of("405 Method Not Allowed", "only GET and HEAD\n", true);
    } else if (path != "/metrics") {
      connection.answer = answer_of("404 Not Found", "the metrics are at /metrics\n", !head);
    } else {
      if (!page && !failed) {
        if (const auto status = board_->ask(kScrapePatience)) {
          page = prometheus::TextSerializer().Serialize(metrics_of(*status));
        } else {
          failed = "503 Service Unavailable";
        }
      }
      connection.answer = page ? answer_of("200 OK", *page, !head)
                               : answer_of(*failed, "the daemon does not answer\n", !head);
    }
    send(connection);
  }
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            std::shared_ptr<StatusBoard> board) {
  const auto parsed = parse(address);
  if (!parsed) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("daemon.metrics = {}: must be a loopback address with a port, such as "
                            "127.0.0.1:9464, because there is no authentication",
                            address));
  }
  const auto failed = [&](const char* what) {
    return fail(ErrorCode::kSystem,
                fmt::format("daemon.metrics = {}: starting the server failed: {}: {}", address,
                            what, std::strerror(errno)));
  };
  Descriptor listener(
      ::socket(parsed->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (listener.get() < 0) return failed("socket");
  // After a restart, connections of the time before do not hold the port.
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&parsed->storage), parsed->bytes) !=
      0) {
    return failed("bind");
  }
  if (::listen(listener.get(), SOMAXCONN) != 0) return failed("listen");
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
    return failed("getsockname");
  }
  const int port =
      ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(bound).sin6_port
                                        : reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  Descriptor wake(::eventfd(0, EFD_CLOEXEC));
  if (wake.get() < 0) return failed("eventfd");
  return std::unique_ptr<MetricsServer>(new MetricsServer(
      std::make_unique<Impl>(std::move(listener), std::move(wake), port, std::move(board))));
}

MetricsServer::MetricsServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetricsServer::~MetricsServer() = default;

int MetricsServer::port() const { return impl_->port(); }

}  // namespace gradwire::metrics
