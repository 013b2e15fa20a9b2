// SPDX-License-Identifier: BSD-3-Clause
#include "host/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>

namespace gradwire::host {
namespace {

constexpr int kFeedsPerLimit = 4;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

ServiceManager ServiceManager::from_environment() {
  const std::string pid = environment("WATCHDOG_PID");
  TimeNs watchdog_ns = 0;
  // Set for one process, and inherited by all that it starts.
  if (pid.empty() || pid == std::to_string(getpid())) {
    watchdog_ns = std::strtoll(environment("WATCHDOG_USEC").c_str(), nullptr, 10) * 1000;
  }
  return ServiceManager(environment("NOTIFY_SOCKET"), watchdog_ns);
}

ServiceManager::ServiceManager(std::string socket, TimeNs watchdog_ns)
    : socket_(std::move(socket)), watchdog_ns_(watchdog_ns > 0 ? watchdog_ns : 0) {}

void ServiceManager::ready(const std::string& status) const { send("READY=1\nSTATUS=" + status); }

void ServiceManager::stopping() const { send("STOPPING=1"); }

bool ServiceManager::is_due(TimeNs now) const {
  if (!listens() || watchdog_ns_ == 0) return false;
  return !fed_ || now - last_feed_ns_ >= watchdog_ns_ / kFeedsPerLimit;
}

std::vector<std::string> ServiceManager::feed(TimeNs now, std::vector<Duty> duties) {
  std::vector<std::string> standing;
  for (std::size_t i = 0; i < duties_.size() && i < duties.size(); ++i) {
    const Duty& before = duties_[i];
    const Duty& after = duties[i];
    if (before.waits && after.waits && before.done == after.done) standing.push_back(after.name);
  }
  duties_ = std::move(duties);
  last_feed_ns_ = now;
  fed_ = true;
  if (standing.empty()) send("WATCHDOG=1");
  return standing;
}

void ServiceManager::send(const std::string& message) const {
  sockaddr_un address{};
  if (socket_.empty() || socket_.size() >= sizeof address.sun_path) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  // A failure is ignored, because a service manager that gets no message acts by itself.
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  [[maybe_unused]] const ssize_t sent = sendto(fd, message.data(), message.size(), MSG_NOSIGNAL,
                                               reinterpret_cast<const sockaddr*>(&address), length);
  close(fd);
}

}  // namespace gradwire::host
