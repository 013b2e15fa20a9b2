// SPDX-License-Identifier: BSD-3-Clause
// The loop of a lane's lcore: rounds, and spinning or sleeping between them.
#include <rte_ethdev.h>
#include <rte_pause.h>
#include <rte_ring.h>

#include <algorithm>
#include <utility>

#include "lane/clock.h"
#include "lane/lane.h"

namespace gradwire::lane {

namespace {

/// For so long after the last data a kernel's socket may end sleeps. Who waits longer waits for a
/// late rank, in sleeps that are a small share of that; and a packet socket tells of all that comes
/// by its interface, for whomever it is.
constexpr TimeNs kWakesLastNs = 2'000'000;

}  // namespace

void Lane::run(const std::atomic<bool>& stop) noexcept {
  const TscClock clock;
  const PreciseSleeps precise;
  TimeNs before = clock.now();
  TimeNs awake_since = before;
  bool worked = false;
  while (!stop.load(std::memory_order_relaxed)) {
    const TimeNs now = clock.now();
    // Since the last round began, but for a sleep.
    round_us_.note(static_cast<std::uint64_t>(now - awake_since) / 1'000);
    awake_since = now;
    count(worked ? counters_.busy_ns : counters_.idle_ns, static_cast<std::uint64_t>(now - before));
    before = now;
    worked = poll_once(now);
    const IdleStep step = after_round(now, worked);
    if (step.action == IdleAction::kPause) rte_pause();
    if (step.action != IdleAction::kSleep || statuses_.unfinished()) continue;
    if (commands_->find_commands()) continue;
    round_us_.note(static_cast<std::uint64_t>(clock.now() - awake_since) / 1'000);
    sleep(step.sleep_ns, now);
    commands_->find_commands();
    awake_since = clock.now();
    count(counters_.sleep_ns, static_cast<std::uint64_t>(awake_since - now));
  }
}

IdleStep Lane::after_round(TimeNs now, bool worked) noexcept {
  // A port with a backlog will soon take frames again.
  const bool behind = std::any_of(ports_.begin(), ports_.end(),
                                  [](const LanePort& port) { return !port.tx.empty(); });
  const Waits waits = waits_for(now);
  const bool interrupts = !behind && !ports_.empty() &&
                          std::all_of(ports_.begin(), ports_.end(), [&](const LanePort& port) {
                            return port.wakes && packets_should_wake(port, waits);
                          });
  IdleStep step =
      polling_.after_round(now, worked, flowed_, expecting_ || behind, interrupts, folding_);
  if (step.action == IdleAction::kSleep) {
    step.sleep_ns = polling_.bound(step.sleep_ns, now, deadline(now));
  }
  return step;
}

void Lane::sleep(TimeNs sleep_ns, TimeNs now) noexcept {
  config_.rings.bell->set_sleeping(true);
  commands_->set_sleeping(true);
  const Waits waits = waits_for(now);
  bool armed = false;
  for (LanePort& port : ports_) armed |= enable_interrupt(port, packets_should_wake(port, waits));
  // Whatever arrived before others could see the flags would not wake the lane, so check once more;
  // also for packets if an interrupt was just armed.
  bool stay = false;
  if (armed) {
    stay = poll_once(now);
    if (stay) {
      (void)after_round(now, true);  // So that it spins for the next packet, if this was data.
    } else {
      sleep_ns = polling_.bound(sleep_ns, now, deadline(now));
    }
  }
  stay = stay || has_messages();
  if (!stay) {
    count(counters_.sleeps);
    sleeper_.sleep(sleep_ns);
  }
  for (const LanePort& port : ports_) {
    if (port.armed) port.port->disable_interrupt(config_.lane);
  }
  commands_->set_sleeping(false);
  config_.rings.bell->set_sleeping(false);
}

Lane::Waits Lane::waits_for(TimeNs now) const noexcept {
  if (!expecting_) return {};
  Waits waits{.message = !rests_.moves(),
              .few_packets = !rests_.streams() && polling_.idle_ns(now) < kWakesLastNs};
  for (const std::uint16_t index : rests_.awake()) {
    const GroupSlot& slot = slots_[index];
    waits.message &= slot.done >= slot.ready_seq;
    waits.few_packets &= slot.streams == 0;
  }
  return waits;
}

bool Lane::packets_should_wake(const LanePort& port, Waits waits) noexcept {
  if (port.port->row().in_memory) return waits.message;
  return !port.port->wakes_by_socket() || waits.few_packets;
}

bool Lane::enable_interrupt(LanePort& port, bool wanted) noexcept {
  port.armed = wanted && port.port->can_interrupt();
  if (!port.armed) {
    // A socket goes on to tell of each packet, as long as it is listened to.
    if (port.socket >= 0) sleeper_.remove(std::exchange(port.socket, -1));
    return false;
  }
  if (port.socket >= 0) return true;
  const int fd = port.port->enable_interrupt(config_.lane);
  // To add a file again costs less than to find out whether it is the same.
  port.wakes = fd >= 0 && sleeper_.add(fd);
  if (port.wakes && port.port->wakes_by_socket()) port.socket = fd;
  return port.wakes;
}

bool Lane::has_messages() const noexcept {
  return rte_ring_empty(config_.rings.requests) == 0 || rte_ring_empty(config_.rings.ops) == 0 ||
         rte_ring_empty(config_.rings.transfers) == 0 ||
         rte_ring_empty(config_.rings.frames) == 0 ||
         // Lane 0's thread reads the lanes' reports even if it takes no commands.
         (config_.lane == 0 && rte_ring_empty(config_.shared.reports) == 0) ||
         commands_->has_command();
}

}  // namespace gradwire::lane
