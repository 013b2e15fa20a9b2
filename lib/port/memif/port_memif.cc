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
  memif_queues_ = MemifQueues::of(id_, queues_, first_pool_, client_end_.has_value());
}

std::uint16_t Port::joined_queues() const noexcept {
  const std::uint16_t joined = memif_queues_.joined();
  // A link that goes down at this moment has none.
  return link_up() && joined != 0 ? std::min(queues_, joined) : queues_;
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
  if (row_->limit != FrameLimitRule::kMemifBuffer || queues_ == 0 || now < next_look_) return {};
  // For a port that was started before the first call, the time to connect begins now.
  if (next_look_ == 0) link_since_ = now;
  next_look_ = now + kLookIntervalNs;
  std::string happened = client_end_ ? tend_client(now, lane_rounds) : std::string{};
  return happened.empty() ? tell_queues() : happened;
}

std::string Port::tend_client(TimeNs now, std::span<const std::uint64_t> lane_rounds) {
  // On a quiet host a connection takes milliseconds. If a port is stopped while its driver is still
  // connecting on the interrupt thread, the driver may use freed memory: hence seconds.
  constexpr TimeNs kLinkLostNs = 300'000'000;
  constexpr TimeNs kConnectNs = 3'000'000'000;
  switch (link_) {
    case Link::kWatched: {
      if (link_up()) {
        link_down_since_ = kNever;
        was_up_ = true;
        return std::exchange(refusals_, 0) != 0 ? connected() : std::string{};
      }
      if (link_down_since_ == kNever) link_down_since_ = now;
      if (now - link_down_since_ < kLinkLostNs || now - link_since_ < kConnectNs) return {};
      running_.store(false, std::memory_order_seq_cst);
      rounds_at_release_.assign(lane_rounds.begin(), lane_rounds.end());
      link_ = Link::kReleasing;
      return {};
    }
    case Link::kReleasing: {
      for (std::size_t lane = 0; lane < lane_rounds.size(); ++lane) {
        if (lane_rounds[lane] - rounds_at_release_[lane] < 2) return {};
      }
      stop();
      link_ = Link::kWaiting;
      return was_up_ || !memif_server_listens(*client_end_) ? went_down() : tell_refusal();
    }
    case Link::kWaiting: {
      if (!memif_server_listens(*client_end_) || rte_eth_dev_start(id_) != 0) return {};
      started_ = true;
      look_at_queues();
      link_ = Link::kWatched;
      link_since_ = now;
      link_down_since_ = kNever;
      running_.store(true, std::memory_order_release);
      was_up_ = false;
      return refusals_ == 0 ? connected() : std::string{};
    }
  }
  return {};
}

std::string Port::connected() const {
  return fmt::format("port {}: connected to the memif server at {}", config_.device,
                     client_end_->socket);
}

std::string Port::went_down() {
  refusals_ = 0;
  return fmt::format("port {}: the memif link went down: waiting for a server at {}",
                     config_.device, client_end_->socket);
}

/// The driver hangs up on a client that wants more queues than the server has, among others, and
/// the reason stays with it. A server that has just begun to listen may not have its port yet.
std::string Port::tell_refusal() {
  constexpr std::uint32_t kTold = 2;
  if (++refusals_ != kTold) return {};
  return fmt::format(
      "port {}: the memif server at {} listens and does not take this end with its {} queue pairs. "
      "Has its daemon fewer lanes? Then set the same lanes.count for both, or give it the client's "
      "end. Or the id or the secret of the two devices differ, or another client has the link",
      config_.device, client_end_->socket, queues_);
}

/// Once, what it costs that a driver keeps its queues in a way that is not known here.
std::string Port::tell_unknown() {
  unknown_told_ = true;
  std::string text = fmt::format(
      "port {}: {} keeps the queues of a memif link in a way that gradwire does not know, so a "
      "packet does not wake a sleeping lane, which sees it when it looks next: lanes.polling = "
      "\"busy\" avoids that",
      config_.device, rte_version());
  if (queues_ > 1 && !memif_queues_.known()) {
    text += fmt::format(
        ". Nor does it show how many queues are joined. If the other daemon has fewer than {} "
        "lanes, packets get lost: set the same lanes.count",
        queues_);
  }
  return text;
}

std::string Port::tell_queues() {
  if (started_ && !memif_queues_.can_interrupt() && !unknown_told_) return tell_unknown();
  if (queues_ == 1 || !link_up() || !memif_queues_.known()) return {};
  const std::uint16_t joined = joined_queues();
  if (joined == std::exchange(joined_told_, joined)) return {};
  if (joined == queues_) {
    return fmt::format("port {}: the memif peer joins all {} queue pairs now", config_.device,
                       queues_);
  }
  return fmt::format(
      "port {}: the memif peer joins {} of {} queue pairs, since its daemon has fewer lanes: "
      "groups use the first {} lanes of this daemon. Set the same lanes.count for both to use all",
      config_.device, joined, queues_, joined);
}

}  // namespace gradwire::port
