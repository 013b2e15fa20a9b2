// SPDX-License-Identifier: BSD-3-Clause
// What the programs that measure cores have in common.
#pragma once

#include <pthread.h>

/// The calling thread, and threads that it makes from now on. @return whether they may run there.
inline bool bind_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  return pthread_setaffinity_np(pthread_self(), sizeof cores, &cores) == 0;
}
