// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The host's side of a persistent kernel: rings doorbells, starts the kernel again when it has
/// parked and there is work, and keeps it from running while the control thread has it paused
/// (allocation and registration wait for kernels to end, so one that never ends would hang them).
///
/// A kernel that parks no longer checks doorbells, so a doorbell rung meanwhile has to start it
/// again: run_if_needed() is called at each doorbell and in every round while work is unfinished.
#pragma once

#include <atomic>
#include <cstdint>

#include "reduce/gpu/batch.h"

namespace gradwire::reduce {

class PersistentHost {
 public:
  explicit PersistentHost(QueueWords& words) noexcept : words_(words) {}

  /// Lane.
  void ring(std::uint32_t slot, std::uint32_t number, std::uint32_t tiles) noexcept {
    std::atomic_ref(words_.doorbell[slot])
        .store(QueueWords::bell(number, tiles), std::memory_order_release);
  }

  /// Lane. `start(run)` starts a kernel that reports `run` when it parks. @return its result; true
  /// if there was nothing to start.
  template <class Start>
  [[nodiscard]] bool run_if_needed(Start&& start) noexcept {
    if (!parked()) return true;
    // Sequentially consistent, so that either the control thread sees that we start a kernel, or we
    // see that it has paused.
    starting_.store(true, std::memory_order_seq_cst);
    bool started = true;
    if (!paused_.load(std::memory_order_seq_cst)) {
      std::atomic_ref(words_.stop).store(0, std::memory_order_relaxed);
      started = start(run_.load(std::memory_order_relaxed) + 1);
      if (started) run_.fetch_add(1, std::memory_order_release);
    }
    starting_.store(false, std::memory_order_release);
    return started;
  }

  /// Control thread: no kernel starts from now on, and a running one is told to park.
  void pause() noexcept {
    paused_.store(true, std::memory_order_seq_cst);
    while (starting_.load(std::memory_order_seq_cst)) {
    }
    std::atomic_ref(words_.stop).store(1, std::memory_order_release);
  }
  void resume() noexcept { paused_.store(false, std::memory_order_release); }

  /// No kernel runs.
  [[nodiscard]] bool parked() const noexcept {
    return std::atomic_ref(words_.parked).load(std::memory_order_acquire) ==
           run_.load(std::memory_order_acquire);
  }

 private:
  QueueWords& words_;
  std::atomic<std::uint32_t> run_{0};  ///< kernels started so far
  std::atomic<bool> paused_{false};
  std::atomic<bool> starting_{false};
};

}  // namespace gradwire::reduce
