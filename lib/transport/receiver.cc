// SPDX-License-Identifier: BSD-3-Clause
#include "transport/receiver.h"

#include <algorithm>
#include <limits>

#include "base/require.h"
#include "transport/time_math.h"

namespace gradwire::transport {

/// @return the index of the first (oldest) range whose last number is not below `packet_number`;
/// range_count_ if none.
std::size_t Receiver::first_range_reaching(std::uint64_t packet_number) const noexcept {
  const auto* const end = ranges_.data() + range_count_;
  const auto* const found = std::lower_bound(
      ranges_.data(), end, packet_number,
      [](const wire::AckRange& range, std::uint64_t number) { return range.last < number; });
  return static_cast<std::size_t>(found - ranges_.data());
}

Receiver::Verdict Receiver::check_older(std::uint64_t packet_number) const noexcept {
  if (packet_number < floor_) return Verdict::kTooOld;
  if (range_count_ == 0 || packet_number > ranges_[range_count_ - 1].last) return Verdict::kNew;
  const std::size_t i = first_range_reaching(packet_number);
  return packet_number >= ranges_[i].first ? Verdict::kDuplicate : Verdict::kNew;
}

void Receiver::drop_oldest_range() noexcept {
  require(range_count_ > 0, "a range that is dropped is there");
  floor_ = ranges_[0].last + 1;
  std::move(ranges_.begin() + 1, ranges_.begin() + static_cast<std::ptrdiff_t>(range_count_),
            ranges_.begin());
  --range_count_;
}

void Receiver::insert(const wire::AckRange& numbers) noexcept {
  if (range_count_ > 0) {
    wire::AckRange& newest = ranges_[range_count_ - 1];
    if (newest.last < numbers.first && newest.last + 1 == numbers.first) {
      newest.last = numbers.last;
      return;
    }
  }
  insert(numbers.first);
  for (std::uint64_t number = numbers.first; number != numbers.last;) insert(++number);
}

void Receiver::insert(std::uint64_t packet_number) noexcept {
  std::size_t i = first_range_reaching(packet_number);
  const bool joins_older = i > 0 && ranges_[i - 1].last + 1 == packet_number;
  const bool joins_newer = i < range_count_ && ranges_[i].first == packet_number + 1;
  if (joins_older && joins_newer) {
    ranges_[i - 1].last = ranges_[i].last;
    std::move(ranges_.begin() + static_cast<std::ptrdiff_t>(i) + 1,
              ranges_.begin() + static_cast<std::ptrdiff_t>(range_count_),
              ranges_.begin() + static_cast<std::ptrdiff_t>(i));
    --range_count_;
    return;
  }
  if (joins_older) {
    ranges_[i - 1].last = packet_number;
    return;
  }
  if (joins_newer) {
    ranges_[i].first = packet_number;
    return;
  }
  if (range_count_ == kMaxRanges) {
    if (i == 0) {
      // It would be the oldest range and be forgotten first. The floor alone remembers it, and it
      // is never reported, so that the peer sends it again under another number.
      floor_ = packet_number + 1;
      return;
    }
    drop_oldest_range();
    --i;
  }
  std::move_backward(ranges_.begin() + static_cast<std::ptrdiff_t>(i),
                     ranges_.begin() + static_cast<std::ptrdiff_t>(range_count_),
                     ranges_.begin() + static_cast<std::ptrdiff_t>(range_count_) + 1);
  require(range_count_ < kMaxRanges && i <= range_count_, "there is room for one range more");
  ranges_[i] = {.first = packet_number, .last = packet_number};
  ++range_count_;
}

void Receiver::want_ack_by(TimeNs time) noexcept { ack_deadline_ = std::min(ack_deadline_, time); }

void Receiver::note(std::uint64_t packet_number) noexcept {
  if (check(packet_number) != Verdict::kNew) return;
  largest_ = std::max(largest_, packet_number);
  insert({packet_number, packet_number});
}

void Receiver::accept_all(TimeNs now, const wire::AckRange& numbers, bool ecn_ce) noexcept {
  require_dear(
      [&] { return check(numbers.first) == Verdict::kNew && check(numbers.last) == Verdict::kNew; },
      "a packet is accepted once, and only if its number is new");
  require(numbers.first <= numbers.last && numbers.last - numbers.first < kMostAtOnce,
          "a burst accepts a packet, and no more than it has");
  const auto count = static_cast<std::uint32_t>(numbers.last - numbers.first + 1);
  last_event_at_ = now;
  packets_accepted_ += count;
  if (ecn_ce) ecn_ce_count_ += count;
  // RFC 9000 section 13.2.1: a packet that opens, fills or follows a gap is reported at once,
  // since the peer's loss detection waits for it.
  const bool in_order = numbers.first == largest_ + 1;
  largest_ = std::max(largest_, numbers.last);
  if (numbers.last > largest_accepted_) {
    largest_accepted_ = numbers.last;
    largest_arrived_at_ = now;
  }
  insert(numbers);
  unacknowledged_packets_ += count;
  if (in_order) {
    want_ack_by(later(now, config_.max_ack_delay_ns));
  } else {
    ack_now_ = true;
    want_ack_by(now);
  }
}

void Receiver::on_duplicate(TimeNs now) noexcept {
  last_event_at_ = now;
  ack_now_ = true;
  want_ack_by(now);
}

void Receiver::request_ack() noexcept {
  ack_now_ = true;
  want_ack_by(last_event_at_);
}

bool Receiver::ack_due(TimeNs now, bool idle) const noexcept {
  if (ack_now_) return true;
  if (unacknowledged_packets_ == 0) return false;
  return idle || unacknowledged_packets_ >= config_.ack_every_packets || now >= ack_deadline_;
}

TimeNs Receiver::deadline() const noexcept { return ack_deadline_; }

void Receiver::write_ack(TimeNs now, wire::AckHeader& out) noexcept {
  const std::uint64_t oldest = largest_ - std::min(largest_, config_.reported_numbers);
  const std::size_t most = std::min(range_count_, wire::kMaxAckRanges);
  std::size_t count = 0;
  for (; count < most && ranges_[range_count_ - 1 - count].last >= oldest; ++count) {
    out.ranges[count] = ranges_[range_count_ - 1 - count];
  }
  require(count <= wire::kMaxAckRanges, "an acknowledgement has no more ranges than it can carry");
  out.range_count = static_cast<std::uint8_t>(count);
  const TimeNs delay_ns = largest_accepted_ == 0 ? 0 : elapsed(largest_arrived_at_, now);
  out.delay_ns = static_cast<std::uint32_t>(
      std::min<TimeNs>(delay_ns, std::numeric_limits<std::uint32_t>::max()));
  out.ecn_ce_count = ecn_ce_count_;
  last_event_at_ = now;
  unacknowledged_packets_ = 0;
  ack_now_ = false;
  ack_deadline_ = kNever;
}

}  // namespace gradwire::transport
