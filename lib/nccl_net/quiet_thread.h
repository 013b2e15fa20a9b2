// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Threads of the plug-in in somebody else's process. That one's signals are handled by its own
/// threads, as if there were no others. Any thread; it allocates.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace gradwire::nccl_net {

/// Runs on its own. Throws if there are no more threads.
template <class Function>
void start_quietly(Function&& function) {
  struct Masked {
    sigset_t before;
    Masked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Masked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
  };
  // A thread has the mask of the one that makes it.
  const Masked masked;
  std::thread(std::forward<Function>(function)).detach();
}

}  // namespace gradwire::nccl_net
