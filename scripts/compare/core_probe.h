// SPDX-License-Identifier: BSD-3-Clause
// What the programs that measure cores have in common.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

/// The calling thread, and threads that it makes from now on. @return whether they may run there.
inline bool bind_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  return pthread_setaffinity_np(pthread_self(), sizeof cores, &cores) == 0;
}

/// For so long prints a line of text for every 20 ms: the median of what `trip` returned then.
template <typename Trip>
void print_medians(double seconds, int decimals, const Trip& trip) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  std::vector<double> trips;
  while (Clock::now() < end) {
    trips.clear();
    const auto until = Clock::now() + std::chrono::milliseconds(20);
    while (Clock::now() < until) trips.push_back(trip());
    const auto middle = trips.begin() + static_cast<long>(trips.size() / 2);
    std::nth_element(trips.begin(), middle, trips.end());
    std::printf("%.*f\n", decimals, *middle);
  }
}
