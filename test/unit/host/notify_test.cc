// SPDX-License-Identifier: BSD-3-Clause
#include "host/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace gradwire::host {
namespace {

/// systemd's end: a socket with an abstract name of this process.
class Listener {
 public:
  Listener() : name_("@gradwire-notify-" + std::to_string(getpid())) {
    fd_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data() + 1, name_.size() - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name_.size());
    REQUIRE(bind(fd_, reinterpret_cast<const sockaddr*>(&address), length) == 0);
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  std::optional<std::string> heard() const {
    std::array<char, 512> buffer{};
    const ssize_t got = recv(fd_, buffer.data(), buffer.size(), 0);
    if (got < 0) return std::nullopt;
    return std::string(buffer.data(), static_cast<std::size_t>(got));
  }

 private:
  std::string name_;
  int fd_ = -1;
};

constexpr TimeNs kSecond = 1'000'000'000;

std::vector<Duty> lanes(std::initializer_list<std::uint64_t> rounds) {
  std::vector<Duty> duties;
  for (const std::uint64_t one : rounds) {
    duties.push_back({"lane " + std::to_string(duties.size()), one});
  }
  return duties;
}

TEST_CASE("ready and stopping are told once each") {
  const Listener systemd;
  const ServiceManager manager(systemd.name());
  manager.ready("two lanes");
  CHECK(systemd.heard() == "READY=1\nSTATUS=two lanes");
  manager.stopping();
  CHECK(systemd.heard() == "STOPPING=1");
  CHECK(systemd.heard() == std::nullopt);
  CHECK_FALSE(manager.is_due(kSecond));
}

TEST_CASE("the watchdog is fed four times within its limit") {
  const Listener systemd;
  ServiceManager manager(systemd.name(), 4 * kSecond);
  CHECK(manager.is_due(0));
  CHECK(manager.feed(0, lanes({5, 7})).empty());
  CHECK(systemd.heard() == "WATCHDOG=1");
  CHECK_FALSE(manager.is_due(kSecond - 1));
  CHECK(manager.is_due(kSecond));
  CHECK(manager.feed(kSecond, lanes({6, 8})).empty());
  CHECK(systemd.heard() == "WATCHDOG=1");
}

TEST_CASE("a lane that stands still starves the watchdog until it moves again") {
  const Listener systemd;
  ServiceManager manager(systemd.name(), 4 * kSecond);
  (void)manager.feed(0, lanes({1, 1, 1}));
  CHECK(systemd.heard() == "WATCHDOG=1");
  CHECK(manager.feed(kSecond, lanes({2, 1, 2})) == std::vector<std::string>{"lane 1"});
  CHECK(systemd.heard() == std::nullopt);
  CHECK(manager.feed(2 * kSecond, lanes({3, 1, 2})) ==
        std::vector<std::string>{"lane 1", "lane 2"});
  CHECK(systemd.heard() == std::nullopt);
  CHECK(manager.feed(3 * kSecond, lanes({4, 2, 3})).empty());
  CHECK(systemd.heard() == "WATCHDOG=1");
}

TEST_CASE("a duty of the control thread stands if what waits for it is not done") {
  const Listener systemd;
  ServiceManager manager(systemd.name(), 4 * kSecond);
  std::uint64_t rounds = 0;
  const auto feed = [&](std::uint64_t done, bool waits) {
    ++rounds;  // the lane goes on in each of these
    return manager.feed(static_cast<TimeNs>(rounds) * kSecond,
                        {{"lane 0", rounds}, {"clients' messages", done, waits}});
  };
  CHECK(feed(1, true).empty());
  CHECK(systemd.heard() == "WATCHDOG=1");
  CHECK(feed(1, true) == std::vector<std::string>{"clients' messages"});
  CHECK(systemd.heard() == std::nullopt);
  CHECK(feed(2, true).empty());
  CHECK(systemd.heard() == "WATCHDOG=1");
  // Who has nothing to do may stand.
  CHECK(feed(2, false).empty());
  CHECK(feed(2, false).empty());
  CHECK(feed(2, true).empty());
}

TEST_CASE("what systemd sets is taken from the environment, for this process alone") {
  const Listener systemd;
  setenv("NOTIFY_SOCKET", systemd.name().c_str(), 1);
  setenv("WATCHDOG_USEC", "3000000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  CHECK(ServiceManager::from_environment().listens());
  CHECK(ServiceManager::from_environment().watchdog_ns() == 3 * kSecond);
  setenv("WATCHDOG_PID", "1", 1);
  CHECK(ServiceManager::from_environment().watchdog_ns() == 0);
  unsetenv("WATCHDOG_PID");
  setenv("WATCHDOG_USEC", "nonsense", 1);
  CHECK(ServiceManager::from_environment().watchdog_ns() == 0);
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  const ServiceManager nobody = ServiceManager::from_environment();
  CHECK_FALSE(nobody.listens());
  CHECK_FALSE(nobody.is_due(kSecond));
  nobody.ready("nobody hears it");
  CHECK(systemd.heard() == std::nullopt);
}

}  // namespace
}  // namespace gradwire::host
