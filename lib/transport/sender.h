// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The sending half of a link: keeps what is in flight, finds losses as RFC 9002 does (packet
/// threshold, time threshold, probe timeout), paces, and asks a congestion controller for the
/// window. It knows nothing of chunks: what was sent is a cookie of the caller's, and a loss is a
/// cookie given back. One lane owns it; it allocates at construction only; time is a parameter.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/require.h"
#include "base/types.h"
#include "transport/congestion.h"
#include "transport/pacer.h"
#include "transport/packet_numbers.h"
#include "transport/rtt.h"
#include "wire/packet.h"

namespace gradwire::transport {

/// Constants of loss detection; the reasons for the defaults stand at the top of loss_detection.cc
/// and in doc/protocol.
struct SenderConfig {
  /// Packets from the oldest in flight to the newest that are remembered, those alone that want an
  /// acknowledgement; rounded up to a power of two, [32, 65536]. can_send() leaves the last
  /// kProbeReserve of them to probes.
  std::uint32_t max_packets_in_flight = 256;
  std::uint32_t packet_threshold = 3;  ///< RFC 9002 section 6.1.1
  TimeNs granularity_ns = 1'000'000;   ///< kGranularity; also the floor of the PTO's variance
  TimeNs initial_rtt_ns = 10'000'000;
  TimeNs max_ack_delay_ns = 1'000'000;
  TimeNs max_pto_ns = 200'000'000;  ///< cap of the backed-off PTO
  std::uint64_t rate_bps = 0;       ///< pacing; 0 = not paced
  std::uint32_t burst_bytes = 0;    ///< pacing burst; 0 = a default from the rate
  friend bool operator==(const SenderConfig&, const SenderConfig&) = default;
};

/// Places that only packets past can_send() get: four probe timeouts' worth, so that what
/// was in flight before a blackout is still known when the first answer comes back.
inline constexpr std::uint32_t kProbeReserve = 8;

/// The caller's name of a sent packet; kNoCookie for a ping, which no outcome tells of.
using Cookie = std::uint64_t;
inline constexpr Cookie kNoCookie = ~std::uint64_t{0};

/// What an acknowledgement or a timer brought. The spans point into the sender and hold until its
/// next call. A cookie may be told acknowledged after it was told lost (a late acknowledgement),
/// and more than once if it was sent more than once.
struct Outcome {
  std::span<const Cookie> acked;
  std::span<const Cookie> lost;
  std::uint32_t probes = 0;     ///< ack-eliciting packets to send now, past window and pacing;
                                ///< has_room() holds for them
  std::uint64_t newest = 0;     ///< the largest number that was acknowledged, if one was for the
                                ///< first time; else 0
  bool limits_changed = false;  ///< credit_chunks or posted_op_seq went up
  bool malformed = false;       ///< acknowledged what was never sent: nothing changed, count it
};

class Sender {
 public:
  /// @param numbers  of the link, from which other packets take theirs too.
  Sender(const SenderConfig& config, std::unique_ptr<CongestionController> controller,
         PacketNumbers& numbers);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  /// @return whether a packet of `bytes` (on the wire) may go now by window, pacing and the room
  /// to remember it. With nothing in flight the window lets one packet go, however small it is.
  /// Credit is the caller's: see credit_chunks() and posted_op_seq().
  [[nodiscard]] bool can_send(TimeNs now, std::uint32_t bytes) const noexcept {
    return can_send(now, bytes, window_bytes());
  }
  /// @param window_bytes  window_bytes(), asked once for packets that go one after the other:
  ///                      sending does not change it.
  [[nodiscard]] bool can_send(TimeNs now, std::uint32_t bytes,
                              std::uint64_t window_bytes) const noexcept {
    return window_lets(bytes, window_bytes) && pacer_.may_send(now, bytes);
  }
  /// The same but for pacing, which time alone opens.
  [[nodiscard]] bool window_lets(std::uint32_t bytes) const noexcept {
    return window_lets(bytes, window_bytes());
  }

  /// Takes the next packet number for a packet of `bytes` that goes out now, is ack-eliciting, and
  /// counts against window and pacing. Also valid when can_send() is false, for probes, as long as
  /// has_room() holds.
  std::uint64_t on_sent(TimeNs now, std::uint32_t bytes, Cookie cookie) noexcept;
  [[nodiscard]] bool has_room() const noexcept { return free_slots() > 0; }

  Outcome on_ack(TimeNs now, const wire::AckHeader& ack) noexcept;

  /// Earliest time at which on_deadline() has something to do: loss time, PTO; kNever if nothing.
  /// Take the acknowledgements that wait in the receive queue first: after a pause of this process
  /// they may say that nothing was lost.
  [[nodiscard]] TimeNs deadline() const noexcept;
  /// Earliest time at which pacing lets `bytes` go; `now` if it does already.
  [[nodiscard]] TimeNs pacing_time(TimeNs now, std::uint32_t bytes) const noexcept;
  /// Where probes are asked for, what is in flight stays in flight (RFC 9002 section 6.2), but for
  /// what must be given up to have numbers for the probes. Afterwards deadline() is after `now`.
  Outcome on_deadline(TimeNs now) noexcept;

  /// Packets take another path from now on: round-trip time and window start anew, numbers go on.
  /// @param resend  the old path is silent: what is in flight is told lost.
  Outcome on_path_changed(TimeNs now, bool resend) noexcept;

  /// The caller is blocked by credit with nothing in flight: arms the PTO so that a probe asks for
  /// the limits again. Cleared by the next acknowledgement. Calling it again while it holds changes
  /// nothing.
  void set_blocked(TimeNs now) noexcept;

  /// Limits from the peer, cumulative and absolute; they never go down.
  [[nodiscard]] std::uint64_t credit_chunks() const noexcept { return credit_chunks_; }
  [[nodiscard]] std::uint64_t posted_op_seq() const noexcept { return posted_op_seq_; }
  /// Also from a hello-ack. @return whether one went up.
  bool raise_limits(std::uint64_t credit_chunks, std::uint64_t posted_op_seq) noexcept;

  /// Nothing in flight is waited for any more (the group ended). Numbers go on from where they
  /// were.
  void forget_all() noexcept;

  [[nodiscard]] std::uint64_t bytes_in_flight() const noexcept;
  [[nodiscard]] std::uint32_t packets_in_flight() const noexcept;
  [[nodiscard]] const RttEstimator& rtt() const noexcept { return rtt_; }
  [[nodiscard]] std::uint32_t pto_count() const noexcept { return pto_count_; }
  /// Packets that came with Congestion Experienced, as the peer reported last.
  [[nodiscard]] std::uint32_t ecn_ce_count() const noexcept { return ecn_ce_count_; }
  [[nodiscard]] std::uint64_t packets_lost() const noexcept { return packets_lost_; }
  [[nodiscard]] std::uint64_t window_bytes() const noexcept { return controller_->window_bytes(); }
  /// Takes effect with the next packet. 0 = not paced.
  void set_rate(TimeNs now, std::uint64_t rate_bps) noexcept;

 private:
  enum class State : std::uint8_t { kNone, kInFlight, kAcked, kLost };
  struct InFlight {
    Cookie cookie = kNoCookie;
    std::uint64_t number = 0;
    TimeNs sent_at = 0;
    std::uint32_t bytes = 0;
    State state = State::kNone;
  };
  /// Which of the packets that want an acknowledgement: 1, 2, 3, ... Their numbers rise with it,
  /// but not one by one.
  using Index = std::uint64_t;

  [[nodiscard]] InFlight& at(Index index) noexcept { return slots_[index & slot_mask_]; }
  [[nodiscard]] const InFlight& at(Index index) const noexcept {
    return slots_[index & slot_mask_];
  }
  /// @return the first that is remembered and whose number is `number` or more; next_ if none is.
  [[nodiscard]] Index first_reaching(std::uint64_t number) const noexcept;
  [[nodiscard]] bool window_lets(std::uint32_t bytes, std::uint64_t window_bytes) const noexcept {
    if (free_slots() <= kProbeReserve) return false;
    // A window below one packet would never open: nothing in flight, no acknowledgement to open it.
    return bytes_in_flight_ == 0 || bytes_in_flight_ + bytes <= window_bytes;
  }
  [[nodiscard]] std::uint64_t free_slots() const noexcept {
    return slot_mask_ + 1 - (next_ - oldest_in_flight_);
  }
  [[nodiscard]] bool is_well_formed(const wire::AckHeader& ack) const noexcept;
  [[nodiscard]] TimeNs loss_delay() const noexcept;
  [[nodiscard]] TimeNs pto_period() const noexcept;
  [[nodiscard]] TimeNs pto_time() const noexcept;
  void begin_outcome() noexcept;
  [[nodiscard]] Outcome make_outcome() const noexcept;
  struct Acknowledged {
    std::uint64_t bytes = 0;  ///< that were in flight
    bool any = false;         ///< a packet was acknowledged for the first time, lost ones included
    Index largest = 0;        ///< of those that the ranges name; 0 = they name none
    bool largest_is_new = false;
  };
  Acknowledged acknowledge_ranges(const wire::AckHeader& ack) noexcept;
  [[nodiscard]] Outcome on_probe_timeout(TimeNs now) noexcept;
  std::uint32_t newly_marked(std::uint32_t ecn_ce_count) noexcept;
  void declare_lost(InFlight& packet) noexcept;
  void detect_lost(TimeNs now) noexcept;
  void skip_resolved() noexcept;

  SenderConfig config_;
  std::unique_ptr<CongestionController> controller_;
  Pacer pacer_;

  PacketNumbers& numbers_;
  /// Slot of packet i: i modulo the size, a power of two. A slot keeps what became of its packet
  /// until the one a whole turn later is sent.
  std::vector<InFlight> slots_;
  std::uint64_t slot_mask_;  ///< one less than there are
  Index next_ = 1;
  Index oldest_in_flight_ = 1;  ///< nothing below it is in flight
  Index oldest_unacked_ = 1;    ///< everything below it is acknowledged, or out of memory
  Index largest_acked_ = 0;     ///< 0 = none yet
  std::uint64_t bytes_in_flight_ = 0;
  std::uint32_t packets_in_flight_ = 0;

  TimeNs loss_time_ = kNever;  ///< when the time threshold makes the next packet lost
  TimeNs pto_base_ = 0;        ///< what the PTO counts from
  bool blocked_ = false;
  std::uint32_t ecn_ce_count_ = 0;  ///< as the peer reported last

  std::vector<Cookie> acked_;  ///< of the current outcome; reserved once
  std::vector<Cookie> lost_;
  std::uint64_t lost_bytes_ = 0;

  std::uint64_t credit_chunks_ = 0;
  std::uint64_t posted_op_seq_ = 0;
  std::uint32_t pto_count_ = 0;
  std::uint64_t packets_lost_ = 0;
  RttEstimator rtt_;
};

inline std::uint64_t Sender::on_sent(TimeNs now, std::uint32_t bytes, Cookie cookie) noexcept {
  require(has_room(), "a packet is sent if there is a record for it");
  const std::uint64_t packet_number = numbers_.take();
  at(next_++) = {.cookie = cookie,
                 .number = packet_number,
                 .sent_at = now,
                 .bytes = bytes,
                 .state = State::kInFlight};
  // The packet that had the slot one turn ago is forgotten now.
  if (next_ - oldest_unacked_ > slot_mask_ + 1) ++oldest_unacked_;
  bytes_in_flight_ += bytes;
  ++packets_in_flight_;
  pto_base_ = std::max(pto_base_, now);
  pacer_.on_sent(now, bytes);
  controller_->on_packet_sent(now, bytes);
  return packet_number;
}

}  // namespace gradwire::transport
