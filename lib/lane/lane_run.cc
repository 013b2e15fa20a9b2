// SPDX-License-Identifier: BSD-3-Clause
// The loop of a lane's lcore: rounds, and what the polling policy says between them.
#include <rte_ethdev.h>
#include <rte_pause.h>
#include <rte_ring.h>
#include <sched.h>

#include <algorithm>

#include "lane/clock.h"
#include "lane/lane.h"

namespace gradwire::lane {

void Lane::run(const std::atomic<bool>& stop) noexcept {
  const TscClock clock;
  set_precise_sleeps();
  bool interrupts = !ports_.empty();
  for (LanePort& port : ports_) {
    if (port.rx_interrupts) {
      const int fd = rte_eth_dev_rx_intr_ctl_q_get_fd(port.port_id, config_.lane);
      port.rx_interrupts = fd >= 0 && sleeper_.add(fd);
    }
    interrupts &= port.rx_interrupts;
  }

  TimeNs before = clock.now();
  bool worked = false;
  while (!stop.load(std::memory_order_relaxed)) {
    const TimeNs now = clock.now();
    count(worked ? counters_.busy_ns : counters_.idle_ns, static_cast<std::uint64_t>(now - before));
    before = now;
    worked = poll_once(now);
    const IdleStep step = polling_.after_round(now, worked, expecting_, interrupts);
    const bool goes_away = step.action == IdleAction::kYield || step.action == IdleAction::kSleep;
    if (goes_away && commands_ != nullptr && commands_->find_commands()) continue;
    switch (step.action) {
      case IdleAction::kNone:
        break;
      case IdleAction::kPause:
        rte_pause();
        break;
      case IdleAction::kYield:
        count(counters_.yields);
        sched_yield();
        polling_.yielded(now, clock.now() - now);
        if (commands_ != nullptr) commands_->find_commands();
        break;
      case IdleAction::kSleep: {
        TimeNs sleep_ns = Polling::bound(step.sleep_ns, now, deadline(now));
        // A port that is behind is asked again soon.
        const bool behind = std::any_of(ports_.begin(), ports_.end(),
                                        [](const LanePort& port) { return !port.tx.empty(); });
        if (behind) sleep_ns = std::min<TimeNs>(sleep_ns, config_.polling.first_sleep_ns);
        if (sleep_ns > 0) sleep(sleep_ns, now);
        if (commands_ != nullptr) commands_->find_commands();
        count(counters_.sleep_ns, static_cast<std::uint64_t>(clock.now() - now));
        break;
      }
    }
  }
}

void Lane::sleep(TimeNs sleep_ns, TimeNs now) noexcept {
  config_.rings.bell->set_sleeping(true);
  if (commands_ != nullptr) commands_->set_sleeping(true);
  for (const LanePort& port : ports_) {
    if (port.rx_interrupts) rte_eth_dev_rx_intr_enable(port.port_id, config_.lane);
  }
  // What came before the flags were seen would wake nobody: one more look, packets included where
  // an interrupt was just armed.
  bool stay = has_messages();
  if (!stay) {
    const bool armed = std::any_of(ports_.begin(), ports_.end(),
                                   [](const LanePort& port) { return port.rx_interrupts; });
    stay = armed && poll_once(now);
  }
  if (!stay) {
    count(counters_.sleeps);
    sleeper_.sleep(sleep_ns);
  }
  for (const LanePort& port : ports_) {
    if (port.rx_interrupts) rte_eth_dev_rx_intr_disable(port.port_id, config_.lane);
  }
  if (commands_ != nullptr) commands_->set_sleeping(false);
  config_.rings.bell->set_sleeping(false);
}

bool Lane::has_messages() const noexcept {
  return rte_ring_empty(config_.rings.requests) == 0 || rte_ring_empty(config_.rings.ops) == 0 ||
         rte_ring_empty(config_.rings.frames) == 0 ||
         (commands_ != nullptr &&
          (rte_ring_empty(config_.shared.reports) == 0 || commands_->has_command()));
}

}  // namespace gradwire::lane
