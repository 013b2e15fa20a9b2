// SPDX-License-Identifier: BSD-3-Clause
// When is a packet lost, and what if nobody says anything.
//
// Three rules, as RFC 9002 section 6, with one deadline per link and no timer per packet:
//
// - Packet threshold: a packet is lost when one sent packet_threshold (3) later is acknowledged.
//   Packets that want no acknowledgement take numbers too, but are not counted: else
//   acknowledgements that go the same way would make one overtaken packet a loss. Within one lane's
//   queue pair, on one 5-tuple, Ethernet does not reorder; 3 tolerates what little a bond or a
//   driver may do, and finds a loss within three packets' time, some microseconds.
// - Time threshold: a packet older than a later one that was acknowledged is lost 9/8 of an RTT
//   (the larger of smoothed and latest) after it was sent. It finds what the packet threshold
//   cannot: the last two packets before a gap in sending. It is never shorter than granularity_ns.
//   Data-centre RTTs are tens of microseconds, but the daemons at both ends are processes: on cores
//   that they share, each is put aside for a scheduler's slice of about a millisecond at any time,
//   and an acknowledgement is late by that much though nothing was lost. A false loss costs a
//   packet and some reduction of the receiver's; waiting 1 ms costs, where only the tail of an op
//   was lost, 1 ms. Hence 1 ms; a site with isolated cores may configure less.
// - Probe timeout (PTO): with something in flight, or blocked by the peer's limits, and nothing
//   acknowledged for smoothed + max(4 x variance, granularity) + max_ack_delay, ask: one or two
//   packets that elicit an acknowledgement go out whatever window and pacing say. What is in flight
//   stays in flight; the answer tells what arrived, and the two rules above find the rest lost.
//   max_ack_delay (1 ms) is five times what the receiver aims at (200 us), for the same scheduler.
//   Each unanswered PTO doubles the next, up to max_pto (200 ms): a dead or paused neighbor is not
//   flooded, and yet within the group's silence limit (seconds) it is asked ten times, so that one
//   lost probe is never taken for a dead rank. Before the first sample the RTT counts as 10 ms: far
//   above any link's, below what a person sees.
//
// Two probes are sent where two packets are in flight, so that one more loss does not cost another
// (doubled) PTO. The PTO counts from the last packet sent, the last new acknowledgement or the last
// PTO, whichever is latest: after a clock jump (a paused process) it fires once, not once for every
// period that passed.
//
// Room to remember: packets from the oldest in flight to the newest are bounded by the slots.
// can_send() leaves kProbeReserve of them to probes. Were more probes lost than that, a PTO
// gives up the oldest packets in flight (tells them lost: the caller sends them again under new
// numbers, a late acknowledgement of the old ones may go unnoticed), so that a probe can always be
// sent and a link always recovers when the network does.
//
// Persistent congestion (RFC 9002 section 7.6) has no counterpart: the window of a congestion
// controller here never collapses below what the group needs to make progress.
#include <algorithm>

#include "base/require.h"
#include "transport/sender.h"
#include "transport/time_math.h"

namespace gradwire::transport {
namespace {

constexpr TimeNs kTimeThresholdNumerator = 9;  // RFC 9002 section 6.1.2: 9/8
constexpr TimeNs kTimeThresholdDenominator = 8;
constexpr std::uint32_t kMaxPtoShift = 20;  // beyond any sensible max_pto_ns, short of overflow
constexpr std::uint32_t kMaxProbes = 2;

}  // namespace

TimeNs Sender::loss_delay() const noexcept {
  const TimeNs rtt_ns = std::max(rtt_.smoothed_ns(), rtt_.latest_ns());
  return std::max(rtt_ns * kTimeThresholdNumerator / kTimeThresholdDenominator,
                  config_.granularity_ns);
}

TimeNs Sender::pto_period() const noexcept {
  const TimeNs once_ns =
      later(later(rtt_.smoothed_ns(), std::max(4 * rtt_.variance_ns(), config_.granularity_ns)),
            config_.max_ack_delay_ns);
  // The cap bounds the back-off, not the RTT: below one RTT every probe would be a false alarm.
  const TimeNs cap_ns = std::max(config_.max_pto_ns, once_ns);
  const std::uint32_t shift = std::min(pto_count_, kMaxPtoShift);
  return once_ns > cap_ns >> shift ? cap_ns : once_ns << shift;
}

TimeNs Sender::pto_time() const noexcept {
  if (packets_in_flight_ == 0 && !blocked_) return kNever;
  return later(pto_base_, pto_period());
}

TimeNs Sender::deadline() const noexcept { return loss_time_ != kNever ? loss_time_ : pto_time(); }

void Sender::begin_outcome() noexcept {
  acked_.clear();
  lost_.clear();
  lost_bytes_ = 0;
}

Outcome Sender::make_outcome() const noexcept {
  require(acked_.size() <= slots_.size() && lost_.size() <= slots_.size(),
          "an outcome names each record once at most, so that it allocates nothing");
  Outcome outcome;
  outcome.acked = acked_;
  outcome.lost = lost_;
  return outcome;
}

bool Sender::is_well_formed(const wire::AckHeader& ack) const noexcept {
  if (ack.range_count > wire::kMaxAckRanges) return false;
  std::uint64_t above = numbers_.next();  // one more than the largest that may come
  for (std::size_t i = 0; i < ack.range_count; ++i) {
    const wire::AckRange& range = ack.ranges[i];
    if (range.first == 0 || range.first > range.last || range.last >= above) return false;
    above = range.first - 1;
  }
  return true;
}

Sender::Index Sender::first_reaching(std::uint64_t number) const noexcept {
  // Ranges mostly begin with what is long known.
  if (oldest_unacked_ == next_ || at(oldest_unacked_).number >= number) return oldest_unacked_;
  Index below = oldest_unacked_;
  Index reaching = next_;
  while (reaching - below > 1) {
    const Index middle = below + (reaching - below) / 2;
    (at(middle).number < number ? below : reaching) = middle;
  }
  return reaching;
}

void Sender::skip_resolved() noexcept {
  while (oldest_in_flight_ < next_ && at(oldest_in_flight_).state != State::kInFlight)
    ++oldest_in_flight_;
  while (oldest_unacked_ < oldest_in_flight_ && at(oldest_unacked_).state == State::kAcked)
    ++oldest_unacked_;
  require(packets_in_flight_ <= next_ - oldest_in_flight_,
          "what is in flight is among what was sent and is not resolved");
}

Sender::Acknowledged Sender::acknowledge_ranges(const wire::AckHeader& ack) noexcept {
  Acknowledged result;
  for (std::size_t i = 0; i < ack.range_count; ++i) {
    const wire::AckRange& range = ack.ranges[i];
    // Ranges repeat what is long known: nothing below oldest_unacked_ is looked at again.
    const Index first = first_reaching(range.first);
    bool last_is_new = false;
    Index index = first;
    for (; index < next_ && at(index).number <= range.last; ++index) {
      InFlight& packet = at(index);
      last_is_new = packet.state == State::kInFlight || packet.state == State::kLost;
      if (!last_is_new) continue;
      if (packet.state == State::kInFlight) {
        result.bytes += packet.bytes;
        bytes_in_flight_ -= packet.bytes;
        --packets_in_flight_;
      }
      packet.state = State::kAcked;
      result.any = true;
      if (packet.cookie != kNoCookie) acked_.push_back(packet.cookie);
    }
    if (result.largest == 0 && index > first) {
      result.largest = index - 1;
      result.largest_is_new = last_is_new;
    }
    if (first == oldest_unacked_) break;
  }
  return result;
}

/// The counter is absolute, modulo 2^32; an acknowledgement that was overtaken brings an older one.
std::uint32_t Sender::newly_marked(std::uint32_t ecn_ce_count) noexcept {
  const auto delta = static_cast<std::int32_t>(ecn_ce_count - ecn_ce_count_);
  if (delta <= 0) return 0;
  ecn_ce_count_ = ecn_ce_count;
  return static_cast<std::uint32_t>(delta);
}

void Sender::declare_lost(InFlight& packet) noexcept {
  require(packet.state == State::kInFlight && bytes_in_flight_ >= packet.bytes,
          "what is told lost was in flight, and counted so");
  packet.state = State::kLost;
  bytes_in_flight_ -= packet.bytes;
  lost_bytes_ += packet.bytes;
  --packets_in_flight_;
  ++packets_lost_;
  if (packet.cookie != kNoCookie) lost_.push_back(packet.cookie);
}

/// RFC 9002 appendix A.10.
void Sender::detect_lost(TimeNs now) noexcept {
  loss_time_ = kNever;
  const TimeNs delay_ns = loss_delay();
  for (Index i = oldest_in_flight_; i < largest_acked_; ++i) {
    InFlight& packet = at(i);
    if (packet.state != State::kInFlight) continue;
    const TimeNs lost_at = later(packet.sent_at, delay_ns);
    if (largest_acked_ - i >= config_.packet_threshold || now >= lost_at) {
      declare_lost(packet);
    } else {
      loss_time_ = std::min(loss_time_, lost_at);
    }
  }
  skip_resolved();
  if (lost_bytes_ > 0) controller_->on_loss(now, lost_bytes_);
}

Outcome Sender::on_ack(TimeNs now, const wire::AckHeader& ack) noexcept {
  begin_outcome();
  if (!is_well_formed(ack)) {
    Outcome outcome;
    outcome.malformed = true;
    return outcome;
  }
  const bool limits_changed = raise_limits(ack.credit_chunks, ack.posted_op_seq);
  const std::uint32_t ce_packets = newly_marked(ack.ecn_ce_count);
  blocked_ = false;

  const Acknowledged acknowledged = acknowledge_ranges(ack);
  largest_acked_ = std::max(largest_acked_, acknowledged.largest);
  require(largest_acked_ < next_, "only what was sent is acknowledged");
  // RFC 9002 section 5.1: only a largest that is new tells the time of this very exchange. It is
  // the largest of those that want an acknowledgement: from its arrival on the delay counts.
  const bool has_sample = acknowledged.largest_is_new;
  const TimeNs latest_rtt_ns = has_sample ? elapsed(at(acknowledged.largest).sent_at, now) : 0;
  const TimeNs waited_ns = std::min<TimeNs>(ack.delay_ns, config_.max_ack_delay_ns);
  const TimeNs delay_ns = std::max<TimeNs>(latest_rtt_ns - waited_ns, 1);
  if (has_sample) rtt_.sample(latest_rtt_ns, waited_ns);
  if (acknowledged.any) {
    pto_count_ = 0;
    pto_base_ = std::max(pto_base_, now);
  }
  if (acknowledged.bytes > 0 || ce_packets > 0)
    controller_->on_ack(now, acknowledged.bytes, ce_packets, has_sample ? delay_ns : 0);
  skip_resolved();
  detect_lost(now);

  Outcome outcome = make_outcome();
  outcome.limits_changed = limits_changed;
  if (acknowledged.any) outcome.newest = at(acknowledged.largest).number;
  return outcome;
}

Outcome Sender::on_path_changed(TimeNs now, bool resend) noexcept {
  begin_outcome();
  if (resend) {
    for (Index i = oldest_in_flight_; i < next_; ++i) {
      if (at(i).state == State::kInFlight) declare_lost(at(i));
    }
    skip_resolved();
    if (lost_bytes_ > 0) controller_->on_loss(now, lost_bytes_);
    loss_time_ = kNever;
  }
  controller_->restart();
  rtt_ = RttEstimator(config_.initial_rtt_ns);
  pto_count_ = 0;
  pto_base_ = std::max(pto_base_, now);
  return make_outcome();
}

/// Asks for probes, and sees to it that there is room for them.
Outcome Sender::on_probe_timeout(TimeNs now) noexcept {
  require(packets_in_flight_ > 0 || blocked_, "a probe asks for something that is awaited");
  const std::uint32_t probes = packets_in_flight_ > 1 ? kMaxProbes : 1;
  while (free_slots() < probes) {
    declare_lost(at(oldest_in_flight_));
    skip_resolved();
  }
  if (lost_bytes_ > 0) controller_->on_loss(now, lost_bytes_);
  ++pto_count_;
  pto_base_ = now;
  require(free_slots() >= probes, "there is a record for each probe that is asked for");
  Outcome outcome = make_outcome();
  outcome.probes = probes;
  return outcome;
}

Outcome Sender::on_deadline(TimeNs now) noexcept {
  begin_outcome();
  const TimeNs due = deadline();
  if (due == kNever || now < due) return {};
  if (loss_time_ == kNever) return on_probe_timeout(now);
  detect_lost(now);
  // What was lost is sent again now; the PTO need not fire for the same silence.
  pto_base_ = std::max(pto_base_, now);
  return make_outcome();
}

}  // namespace gradwire::transport
