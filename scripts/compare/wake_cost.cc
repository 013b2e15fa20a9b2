// SPDX-License-Identifier: BSD-3-Clause
// wake_cost CORE SECONDS: how long two threads of one core take to wake each other, both ways, in
// microseconds: two wake-ups and two context switches. A line of text, the median, for every 20 ms.
// One waits as a daemon's lane does (epoll, a timer of 2 ms), the other as its client (poll).
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core_probe.h"

namespace {

using Clock = std::chrono::steady_clock;

std::atomic<bool> stop{false};

void ring(int event) {
  const std::uint64_t one = 1;
  if (write(event, &one, sizeof one) != sizeof one) std::abort();
}

void be_lane(int doorbell, int completion) {
  const int set = epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  if (set < 0 || epoll_ctl(set, EPOLL_CTL_ADD, doorbell, &event) != 0) std::abort();
  const timespec at_most{.tv_sec = 0, .tv_nsec = 2'000'000};
  while (!stop.load(std::memory_order_relaxed)) {
    if (epoll_pwait2(set, &event, 1, &at_most, nullptr) == 1) ring(completion);
  }
  close(set);
}

double microseconds_both_ways(int doorbell, int completion) {
  const auto start = Clock::now();
  ring(doorbell);
  pollfd wait{.fd = completion, .events = POLLIN, .revents = 0};
  std::uint64_t taken = 0;
  if (poll(&wait, 1, 1000) != 1 || read(completion, &taken, sizeof taken) < 0) std::abort();
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: wake_cost CORE SECONDS\n");
    return 2;
  }
  const int core = std::atoi(argv[1]);
  if (!bind_to_core(core)) {
    std::fprintf(stderr, "wake_cost: no thread may run on core %d\n", core);
    return 1;
  }
  const int doorbell = eventfd(0, EFD_CLOEXEC);
  const int completion = eventfd(0, EFD_CLOEXEC);
  if (doorbell < 0 || completion < 0) {
    std::perror("wake_cost: eventfd");
    return 1;
  }
  std::thread lane([&] { be_lane(doorbell, completion); });  // on this core, as its maker
  print_medians(std::atof(argv[2]), 2,
                [&] { return microseconds_both_ways(doorbell, completion); });
  stop = true;
  lane.join();
  return 0;
}
