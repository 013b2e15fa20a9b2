// SPDX-License-Identifier: BSD-3-Clause
#include "port/interrupt_thread.h"

#include <rte_alarm.h>
#include <rte_interrupts.h>

#include <atomic>
#include <ctime>
#include <memory>

namespace gradwire::port {
namespace {

constexpr int kStepLooks = 20'000;
constexpr long kStepLookNs = 100'000;

enum class Step : int { kWaiting, kRunning, kDone };
struct Work {
  const std::function<void()>* todo = nullptr;  ///< valid until kDone; owned by the caller
  std::atomic<Step> step{Step::kWaiting};
};

bool asked_for = false;  // used by the interrupt thread alone

void do_work(void* argument) {
  const std::unique_ptr<std::shared_ptr<Work>> held(static_cast<std::shared_ptr<Work>*>(argument));
  Work& work = **held;
  Step waiting = Step::kWaiting;
  if (!work.step.compare_exchange_strong(waiting, Step::kRunning)) return;  // the caller did it
  asked_for = true;
  (*work.todo)();
  asked_for = false;
  work.step.store(Step::kDone, std::memory_order_release);
}

}  // namespace

void on_interrupt_thread(const std::function<void()>& work) {
  const auto shared = std::make_shared<Work>();
  shared->todo = &work;
  auto held = std::make_unique<std::shared_ptr<Work>>(shared);
  if (rte_thread_is_intr() != 0 || rte_eal_alarm_set(1, do_work, held.get()) != 0) return work();
  static_cast<void>(held.release());
  for (int look = 0;; ++look) {
    const Step step = shared->step.load(std::memory_order_acquire);
    if (step == Step::kDone) return;
    Step waiting = Step::kWaiting;
    if (look >= kStepLooks && shared->step.compare_exchange_strong(waiting, Step::kDone))
      return work();
    const timespec pause{0, kStepLookNs};
    nanosleep(&pause, nullptr);
  }
}

bool is_work_asked_for() noexcept { return asked_for; }

}  // namespace gradwire::port
