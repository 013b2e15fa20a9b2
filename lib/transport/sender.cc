// SPDX-License-Identifier: BSD-3-Clause
// What the sending side counts: numbers, window, pacing, limits. loss_detection.cc has what
// acknowledgements and timers change.
#include "transport/sender.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/require.h"
#include "transport/time_math.h"

namespace gradwire::transport {
namespace {

constexpr std::uint32_t kMinSlots = 32;
constexpr std::uint32_t kMaxSlots = 65536;

}  // namespace

Sender::Sender(const SenderConfig& config, std::unique_ptr<CongestionController> controller,
               PacketNumbers& numbers)
    : config_(config),
      controller_(std::move(controller)),
      pacer_(config.rate_bps, config.burst_bytes),
      numbers_(numbers),
      slots_(std::bit_ceil(std::clamp(config.max_packets_in_flight, kMinSlots, kMaxSlots))),
      slot_mask_(slots_.size() - 1),
      rtt_(config.initial_rtt_ns) {
  require(controller_ != nullptr, "a sender has a congestion controller");
  // An outcome names each slot at most once in each list.
  acked_.reserve(slots_.size());
  lost_.reserve(slots_.size());
}

Sender::~Sender() = default;

TimeNs Sender::pacing_time(TimeNs now, std::uint32_t bytes) const noexcept {
  return pacer_.time_for(now, bytes);
}

void Sender::set_rate(TimeNs now, std::uint64_t rate_bps) noexcept {
  pacer_.set_rate(now, rate_bps);
}

void Sender::set_blocked(TimeNs now) noexcept {
  if (blocked_) return;
  blocked_ = true;
  if (packets_in_flight_ == 0) pto_base_ = std::max(pto_base_, now);
}

bool Sender::raise_limits(std::uint64_t credit_chunks, std::uint64_t posted_op_seq) noexcept {
  const bool raised = credit_chunks > credit_chunks_ || posted_op_seq > posted_op_seq_;
  credit_chunks_ = std::max(credit_chunks_, credit_chunks);
  posted_op_seq_ = std::max(posted_op_seq_, posted_op_seq);
  return raised;
}

void Sender::forget_all() noexcept {
  for (Index i = oldest_unacked_; i < next_; ++i) at(i).state = State::kNone;
  oldest_in_flight_ = next_;
  oldest_unacked_ = next_;
  bytes_in_flight_ = 0;
  packets_in_flight_ = 0;
  loss_time_ = kNever;
  blocked_ = false;
  pto_count_ = 0;
}

std::uint64_t Sender::bytes_in_flight() const noexcept { return bytes_in_flight_; }

std::uint32_t Sender::packets_in_flight() const noexcept { return packets_in_flight_; }

}  // namespace gradwire::transport
