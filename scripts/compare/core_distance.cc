// SPDX-License-Identifier: BSD-3-Clause
// core_distance CORE CORE SECONDS: how long a cache line takes from one core to the other and back,
// in nanoseconds: a line of text, the median, for every 20 ms. On one machine it says which cache
// the two share; where the figures of one run differ, a hypervisor moves virtual cores about.

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core_probe.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTripsInARow = 200;

alignas(128) std::atomic<unsigned> there{0};
alignas(128) std::atomic<unsigned> back{0};
std::atomic<bool> stop{false};

void answer() {
  unsigned seen = 0;
  while (!stop.load(std::memory_order_relaxed)) {
    const unsigned now = there.load(std::memory_order_acquire);
    if (now == seen) continue;
    seen = now;
    back.store(now, std::memory_order_release);
  }
}

double nanoseconds_a_trip() {
  static unsigned trip = 0;
  const auto start = Clock::now();
  for (int i = 0; i < kTripsInARow; ++i) {
    there.store(++trip, std::memory_order_release);
    while (back.load(std::memory_order_acquire) != trip) {
    }
  }
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / kTripsInARow;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: core_distance CORE CORE SECONDS\n");
    return 2;
  }
  std::atomic<int> bound{0};
  std::thread other([&] {
    bound = bind_to_core(std::atoi(argv[2])) ? 1 : -1;
    if (bound == 1) answer();
  });
  while (bound == 0) {
  }
  if (bound != 1 || !bind_to_core(std::atoi(argv[1]))) {
    std::fprintf(stderr, "core_distance: no thread may run on core %s or %s\n", argv[1], argv[2]);
    stop = true;
    other.join();
    return 1;
  }
  print_medians(std::atof(argv[3]), 0, nanoseconds_a_trip);
  stop = true;
  other.join();
  return 0;
}
