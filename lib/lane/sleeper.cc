// SPDX-License-Identifier: BSD-3-Clause
#include "lane/sleeper.h"

#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>

namespace gradwire::lane {

Sleeper::Sleeper() noexcept : epoll_fd_(epoll_create1(EPOLL_CLOEXEC)) {}

Sleeper::~Sleeper() {
  if (epoll_fd_ >= 0) close(epoll_fd_);
}

bool Sleeper::add(int fd) noexcept {
  epoll_event event{};
  // Edge-triggered and never read: a client shares its doorbell's open file and could empty it and
  // make it blocking, so that a read here would hang the lane.
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = fd;
  return epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) == 0 || errno == EEXIST;
}

void Sleeper::remove(int fd) noexcept {
  epoll_event event{};
  epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, fd, &event);
}

bool Sleeper::sleep(TimeNs sleep_ns) noexcept {
  timespec timeout{};
  timeout.tv_sec = sleep_ns / 1'000'000'000;
  timeout.tv_nsec = sleep_ns % 1'000'000'000;
  std::array<epoll_event, 16> events;
  const int ready =
      epoll_pwait2(epoll_fd_, events.data(), static_cast<int>(events.size()), &timeout, nullptr);
  return ready > 0;
}

PreciseSleeps::PreciseSleeps() noexcept : before_ns_(prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL)) {
  constexpr long kSlackNs = 1'000;
  if (before_ns_ > kSlackNs) {
    prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(kSlackNs), 0UL, 0UL, 0UL);
  }
}

PreciseSleeps::~PreciseSleeps() {
  // A real-time thread has 0, but setting 0 would mean "the default".
  if (before_ns_ > 0)
    prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(before_ns_), 0UL, 0UL, 0UL);
}

}  // namespace gradwire::lane
