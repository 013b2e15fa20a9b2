// SPDX-License-Identifier: BSD-3-Clause
// What a memif port needs while it runs: a client end connects again, a peer with fewer queues is
// noticed, and packets wake lanes.
#include <fmt/format.h>
#include <rte_ethdev.h>
#include <rte_version.h>

#include <algorithm>
#include <utility>

#include "port/port.h"

namespace gradwire::port {

void Port::look_at_queues() noexcept {
  if (row_->limit != FrameLimitRule::kMemifBuffer) return;
  memif_queues_ = MemifQueues::of(id_, setup_.queues, first_pool_, client_.has_value());
}

std::uint16_t Port::joined_queues() const noexcept {
  const std::uint16_t joined = memif_queues_.joined();
  // A link that goes down at this moment has none.
  return link_up() && joined != 0 ? std::min(setup_.queues, joined) : setup_.queues;
}

int Port::enable_interrupt(std::uint16_t queue) const noexcept {
  if (interrupts_) {
    if (rte_eth_dev_rx_intr_enable(id_, queue) != 0) return -1;
    return rte_eth_dev_rx_intr_ctl_q_get_fd(id_, queue);
  }
  if (wake_socket_ >= 0) return wake_socket_;
  // While the link is up, the driver leaves its memory where it is until the lane's next round.
  if (!takes_bursts(queue) || !memif_queues_.unmask(queue)) return -1;
  return memif_queues_.interrupt_fd(queue);
}

void Port::disable_interrupt(std::uint16_t queue) const noexcept {
  if (interrupts_) {
    rte_eth_dev_rx_intr_disable(id_, queue);
  } else if (wake_socket_ < 0 && takes_bursts(queue)) {
    memif_queues_.mask(queue);
  }
}

std::string Port::tend(TimeNs now, std::span<const std::uint64_t> lane_rounds) {
  constexpr TimeNs kLookIntervalNs = 50'000'000;
  if (row_->limit != FrameLimitRule::kMemifBuffer || setup_.queues == 0 || now < next_look_)
    return {};
  // For a port that was started before the first call, the time to connect begins now.
  if (next_look_ == 0 && client_) client_->begin(now);
  next_look_ = now + kLookIntervalNs;
  std::string happened = client_ ? tend_client(now, lane_rounds) : std::string{};
  return happened.empty() ? tell_queues() : happened;
}

std::string Port::tend_client(TimeNs now, std::span<const std::uint64_t> lane_rounds) {
  switch (client_->look(now, link_up(), lane_rounds)) {
    case MemifClient::Step::kNone:
      break;
    case MemifClient::Step::kConnected:
      return client_->connected();
    case MemifClient::Step::kRelease:
      running_.store(false, std::memory_order_seq_cst);
      break;
    case MemifClient::Step::kStop:
      stop();
      return client_->stopped(setup_.queues);
    case MemifClient::Step::kStart: {
      if (rte_eth_dev_start(id_) != 0) break;
      started_ = true;
      look_at_queues();
      std::string happened = client_->started(now);
      running_.store(true, std::memory_order_release);
      return happened;
    }
  }
  return {};
}

/// Once, what it costs that a driver keeps its queues in a way that is not known here.
std::string Port::tell_unknown() {
  unknown_told_ = true;
  std::string text = fmt::format(
      "port {}: {} keeps the queues of a memif link in a way that gradwire does not know, so a "
      "packet does not wake a sleeping lane, which sees it when it looks next: lanes.polling = "
      "\"busy\" avoids that",
      config_.device, rte_version());
  if (setup_.queues > 1 && !memif_queues_.known()) {
    text += fmt::format(
        ". Nor does it show how many queues are joined. If the other daemon has fewer than {} "
        "lanes, packets get lost: set the same lanes.count",
        setup_.queues);
  }
  return text;
}

std::string Port::tell_queues() {
  if (started_ && !memif_queues_.can_interrupt() && !unknown_told_) return tell_unknown();
  if (setup_.queues == 1 || !link_up() || !memif_queues_.known()) return {};
  const std::uint16_t joined = joined_queues();
  if (joined == std::exchange(joined_told_, joined)) return {};
  if (joined == setup_.queues) {
    return fmt::format("port {}: the memif peer joins all {} queue pairs now", config_.device,
                       setup_.queues);
  }
  return fmt::format(
      "port {}: the memif peer joins {} of {} queue pairs, since its daemon has fewer lanes: "
      "groups use the first {} lanes of this daemon. Set the same lanes.count for both to use all",
      config_.device, joined, setup_.queues, joined);
}

}  // namespace gradwire::port
