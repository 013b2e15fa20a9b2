// SPDX-License-Identifier: BSD-3-Clause
// Acknowledgement ranges from both ends: a receiver that gets packet numbers in any order, compared
// with a set that remembers all of them, and a sender that gets acknowledgements of anything,
// compared with an account of what it sent.
//
// The input is a list of actions, a byte each and then its numbers.
#include <memory>
#include <set>
#include <unordered_map>

#include "fuzz/input.h"
#include "transport/receiver.h"
#include "transport/sender.h"
#include "wire/packet.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;
using namespace gradwire::transport;

class Receiving {
 public:
  void packet(Input& input, TimeNs now) {
    std::uint64_t number = newest_ + 1;
    switch (input.pick(4)) {
      case 0:
        break;
      case 1:
        number = newest_ + input.u8();
        break;
      case 2:
        number = newest_ - std::min<std::uint64_t>(input.u16(), newest_);
        break;
      default:
        number = input.u64();
    }
    // What decode() accepts.
    number = std::clamp<std::uint64_t>(number, 1, wire::kLastPacketNumber);
    const Receiver::Verdict verdict = receiver_.check(number);
    const bool accepted = accepted_.contains(number);
    if (verdict == Receiver::Verdict::kNew) FUZZ_CHECK(!accepted);
    if (verdict == Receiver::Verdict::kDuplicate) FUZZ_CHECK(accepted);
    if (verdict == Receiver::Verdict::kNew) {
      const std::uint32_t kind = input.pick(3);
      if (kind == 2) {
        receiver_.note(number);
        ++noted_;
      } else {
        receiver_.accept(now, number, kind != 0);
      }
      accepted_.insert(number);
      newest_ = std::max(newest_, number);
      FUZZ_CHECK(receiver_.check(number) != Receiver::Verdict::kNew);
    } else {
      receiver_.on_duplicate(now);
      FUZZ_CHECK(receiver_.ack_due(now, false));
    }
    FUZZ_CHECK(receiver_.packets_accepted() + noted_ == accepted_.size());
  }

  /// Every number in it was accepted, and both the codec and a sender accept it.
  wire::AckHeader acknowledge(TimeNs now) {
    wire::AckHeader ack;
    receiver_.write_ack(now, ack);
    FUZZ_CHECK(ack.range_count <= wire::kMaxAckRanges);
    FUZZ_CHECK((ack.range_count == 0) == accepted_.empty());
    std::uint64_t above = newest_ + 2;
    for (std::size_t i = 0; i < ack.range_count; ++i) {
      const wire::AckRange& range = ack.ranges[i];
      FUZZ_CHECK(range.first >= 1 && range.first <= range.last && range.last + 1 < above);
      above = range.first;
      // A range has no holes: every number between its ends was accepted.
      const auto low = accepted_.lower_bound(range.first);
      const auto high = accepted_.upper_bound(range.last);
      FUZZ_CHECK(static_cast<std::uint64_t>(std::distance(low, high)) ==
                 range.last - range.first + 1);
    }
    if (ack.range_count > 0) FUZZ_CHECK(ack.ranges[0].last == newest_);
    FUZZ_CHECK(!receiver_.ack_due(now, true));
    std::array<std::byte, 2048> bytes{};
    const std::size_t written = encode_ack(bytes, {.packet_number = 1}, ack);
    auto decoded = std::make_unique<wire::Packet>();
    FUZZ_CHECK(wire::decode({bytes.data(), written}, *decoded) == wire::Drop::kNone);
    FUZZ_CHECK(decoded->ack.range_count == ack.range_count);
    for (std::size_t i = 0; i < ack.range_count; ++i)
      FUZZ_CHECK(decoded->ack.ranges[i] == ack.ranges[i]);
    return ack;
  }
  void ask() { receiver_.request_ack(); }

 private:
  Receiver receiver_{ReceiverConfig{}};
  std::set<std::uint64_t> accepted_;
  std::uint64_t newest_ = 0;
  std::size_t noted_ = 0;  ///< of those that were accepted
};

class Sending {
 public:
  Sending(std::uint32_t numbers, CongestionKind kind)
      : sender_({.max_packets_in_flight = numbers},
                make_controller({.kind = kind, .max_window_bytes = 32'000, .packet_bytes = 1'000}),
                numbers_) {}

  void send(TimeNs now, bool past) {
    if (past ? !sender_.has_room() : !sender_.can_send(now, kBytes)) return;
    const std::uint64_t next = numbers_.next();
    const std::uint64_t number = sender_.on_sent(now, kBytes, next);
    FUZZ_CHECK(number == next);
    open_.insert(number);
    sent_.insert(number);
    check();
  }
  /// A packet that wants no acknowledgement.
  void send_other() { static_cast<void>(numbers_.take()); }

  void acknowledge(Input& input, TimeNs now) {
    wire::AckHeader ack;
    ack.range_count = static_cast<std::uint8_t>(input.pick(6));
    std::uint64_t at = numbers_.next() - 1 + input.pick(2) * input.pick(3);
    for (std::size_t i = 0; i < ack.range_count; ++i) {
      at -= std::min<std::uint64_t>(input.small_or_any() % 64, at);
      ack.ranges[i].last = at;
      at -= std::min<std::uint64_t>(input.pick(16), at);
      ack.ranges[i].first = at;
      at -= std::min<std::uint64_t>(input.pick(8), at);
    }
    ack.credit_chunks = input.small_or_any();
    ack.posted_op_seq = input.small_or_any();
    ack.delay_ns = input.u32();
    ack.ecn_ce_count = input.u8();
    take(ack, now);
  }

  void take(const wire::AckHeader& ack, TimeNs now) {
    const std::uint64_t in_flight = sender_.bytes_in_flight();
    const Outcome outcome = sender_.on_ack(now, ack);
    if (outcome.malformed) {
      FUZZ_CHECK(outcome.acked.empty() && outcome.lost.empty());
      FUZZ_CHECK(sender_.bytes_in_flight() == in_flight);
    }
    for (const Cookie cookie : outcome.acked) {
      FUZZ_CHECK(sent_.contains(cookie) && acked_.insert(cookie).second);
      const bool named = std::any_of(
          ack.ranges.begin(), ack.ranges.begin() + ack.range_count,
          [&](const wire::AckRange& r) { return r.first <= cookie && cookie <= r.last; });
      FUZZ_CHECK(named);
      open_.erase(cookie);
    }
    settle(outcome);
  }

  void deadline(TimeNs& now, bool wait) {
    const TimeNs due = sender_.deadline();
    if (wait && due != kNever) now = std::max(now, due);
    const Outcome outcome = sender_.on_deadline(now);
    FUZZ_CHECK(outcome.acked.empty());
    settle(outcome);
    for (std::uint32_t i = 0; i < outcome.probes; ++i) {
      FUZZ_CHECK(sender_.has_room());
      send(now, true);
    }
  }
  void blocked(TimeNs now) { sender_.set_blocked(now); }
  void forget() {
    sender_.forget_all();
    open_.clear();
    check();
  }

 private:
  static constexpr std::uint32_t kBytes = 1'000;

  void settle(const Outcome& outcome) {
    for (const Cookie cookie : outcome.lost) {
      FUZZ_CHECK(sent_.contains(cookie) && !acked_.contains(cookie));
      FUZZ_CHECK(open_.erase(cookie) == 1);
    }
    check();
  }
  void check() const {
    FUZZ_CHECK(sender_.packets_in_flight() == open_.size());
    FUZZ_CHECK(sender_.bytes_in_flight() == open_.size() * kBytes);
    FUZZ_CHECK(open_.empty() || sender_.deadline() != kNever);
    FUZZ_CHECK(sender_.window_bytes() > 0);
  }

  PacketNumbers numbers_;
  Sender sender_;
  std::set<Cookie> sent_;
  std::set<Cookie> open_;   ///< in flight
  std::set<Cookie> acked_;  ///< told once
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(std::as_bytes(std::span(data, size)));
  Receiving receiving;
  const std::uint32_t numbers = 32u << input.pick(3);
  Sending sending(numbers, static_cast<CongestionKind>(input.pick(3)));
  TimeNs now = 1;
  for (int actions = 0; actions < 2000 && !input.empty(); ++actions) {
    switch (input.pick(11)) {
      case 0:
      case 1:
        receiving.packet(input, now);
        break;
      case 2:
        static_cast<void>(receiving.acknowledge(now));
        break;
      case 3:
        receiving.ask();
        break;
      case 4:
        for (std::uint32_t n = input.pick(32) + 1; n > 0; --n) sending.send(now, false);
        break;
      case 5:
        if (input.pick(2) != 0) {
          sending.send_other();
        } else {
          sending.send(now, true);
        }
        break;
      case 6:
        sending.acknowledge(input, now);
        break;
      case 7:
        // Numbers of another connection.
        sending.take(receiving.acknowledge(now), now);
        break;
      case 8:
        sending.deadline(now, input.pick(2) != 0);
        break;
      case 9:
        now += static_cast<TimeNs>(input.u8()) << input.pick(24);
        break;
      default:
        if (input.pick(4) == 0) {
          sending.forget();
        } else {
          sending.blocked(now);
        }
    }
  }
  return 0;
}
