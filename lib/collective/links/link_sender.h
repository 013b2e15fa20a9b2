// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Data to the rank at the other end of a link: chunks that are ready to go, grants and credit, and
/// what is in flight. One lane owns it; it allocates at construction only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "collective/fixed_queue.h"
#include "collective/links/in_flight.h"
#include "collective/links/link_end.h"
#include "collective/links/packet_buffers.h"
#include "collective/ops/op_table.h"
#include "collective/shard_config.h"
#include "transport/sender.h"
#include "wire/alike.h"

namespace gradwire::collective {

/// What an acknowledgement or a timer brought.
struct SendOutcome {
  bool malformed = false;     ///< nothing was changed
  bool acknowledged = false;  ///< of what was in flight
  std::uint64_t newest = 0;   ///< the largest number acknowledged, if one was for the first time
};

class LinkSender {
 public:
  LinkSender(const ShardConfig& config, LinkEnd& end, const PacketBuffers& buffers, OpTable& ops,
             ShardCounters& counters);

  /// Nothing was sent before `now`: pings count from there.
  void quiet_from(TimeNs now) noexcept { last_sent_ = now; }

  // Grants: the rank tells which ops its client has posted; some packets may go ahead of that.
  [[nodiscard]] bool was_posted_there(const Op& op) const noexcept {
    return op.spec.op_seq <= sender_.posted_op_seq();
  }
  [[nodiscard]] bool has_grant(const Op& op) const noexcept {
    return was_posted_there(op) || may_go_early(op);
  }
  /// @return whether a chunk of the op may go; takes an eager place if it needs one.
  [[nodiscard]] bool take_grant(Op& op) noexcept {
    if (was_posted_there(op)) return true;
    if (!may_go_early(op)) return false;
    ++eager_;
    ++op.eager_sent;
    return true;
  }
  /// The op's chunks are not ahead of their grant any more.
  void give_back_eager(Op& op) noexcept {
    require(eager_ >= op.eager_sent, "an op gives back the eager places that it took");
    eager_ -= op.eager_sent;
    op.eager_sent = 0;
  }
  /// The hello-ack's limits.
  void raise_limits(std::uint64_t credit_chunks, std::uint64_t posted_op_seq) noexcept;

  // Chunks that are ready, or promised: those that the backend still has.
  [[nodiscard]] std::size_t waiting() const noexcept { return ready_.size() + promised_; }
  void promise() noexcept { ++promised_; }
  /// @return where a chunk that was promised belongs, to be filled in.
  [[nodiscard]] ReadyChunk& add_promised() noexcept {
    require(promised_ > 0 && !ready_.full(),
            "a chunk that was promised a place among the ready has it");
    --promised_;
    return ready_.add();
  }

  /// Whether one more chunk of full length may be started now: it has a record, room and credit.
  [[nodiscard]] bool may_start(TimeNs now, const OutboxSide& box) const noexcept {
    return in_flight_.free() > waiting() && box.count + waiting() < box.room &&
           distinct_sent_ + waiting() < sender_.credit_chunks() &&
           sender_.can_send(now, wire_bytes(config_.payload_bytes));
  }
  /// Whether the op has its grant, and own chunks leave half of the window to what is on its way.
  /// Of an op that holds its packets they leave half of the next rank's room to that, too: while
  /// there is room for one more somewhere in the ring, what is on its way moves, and with room
  /// everywhere it moves as fast as windows let it.
  [[nodiscard]] bool own_may_go(const Op& op) const noexcept {
    const std::size_t busy = in_flight_.size() - in_flight_.free() + waiting();
    return op.admitted && has_grant(op) &&
           (op.rules.whole_window || busy * 2 < in_flight_.size()) &&
           (!op.rules.holds ||
            distinct_sent_ + waiting() + left_to_transit_ < sender_.credit_chunks());
  }
  /// The same without time and room: whether nothing but pacing keeps a chunk that would be
  /// started, or one that is ready.
  enum class Blocked : std::uint8_t { kYes, kIfNothingStarts, kNo };
  [[nodiscard]] Blocked blocked() const noexcept;

  [[nodiscard]] SendOutcome on_ack(const wire::AckHeader& ack, TimeNs now) noexcept;
  [[nodiscard]] SendOutcome on_deadline(TimeNs now) noexcept;
  /// Retransmissions, and then probes for which the transport has asked.
  void send_probes(TimeNs now, OutboxSide& box) noexcept;
  bool send_lost(TimeNs now, OutboxSide& box) noexcept;
  bool send_ready(TimeNs now, OutboxSide& box) noexcept;
  /// @param more_to_go  chunks wait for a grant, or for credit.
  void notice_blocked(bool more_to_go, TimeNs now) noexcept;
  bool send_ping_if_quiet(TimeNs now, OutboxSide& box) noexcept;

  [[nodiscard]] bool wants_probes() const noexcept { return probes_wanted_ > 0; }
  [[nodiscard]] bool can_probe() const noexcept { return probes_wanted_ > 0 && sender_.has_room(); }
  /// Whether a chunk of the op waits for the other end: to acknowledge, to grant. It looks through
  /// all records.
  [[nodiscard]] bool has_any_of(std::uint64_t op_seq) const noexcept;
  /// Whether no chunk waits for it. Pings may.
  [[nodiscard]] bool idle() const noexcept { return in_flight_.empty() && ready_.empty(); }
  /// Whether it has chunks of ops up to that one.
  [[nodiscard]] bool has_in_flight(std::uint64_t op_seq) const noexcept {
    return in_flight_.has_any_up_to(op_seq);
  }
  /// But for pings.
  [[nodiscard]] bool nothing_in_flight() const noexcept { return in_flight_.empty(); }
  [[nodiscard]] TimeNs ping_at() const noexcept {
    return last_sent_ + config_.timeouts.ping_interval_ns;
  }
  [[nodiscard]] TimeNs pacing_time(TimeNs now) const noexcept {
    return sender_.pacing_time(now, wire_bytes(config_.payload_bytes));
  }
  [[nodiscard]] const transport::Sender& transport() const noexcept { return sender_; }
  [[nodiscard]] std::uint32_t lost() const noexcept { return in_flight_.lost(); }
  [[nodiscard]] std::size_t ready() const noexcept { return ready_.size(); }
  /// First transmissions: what credit counts.
  [[nodiscard]] std::uint64_t chunks_sent() const noexcept { return distinct_sent_; }

  /// Chunks that held the credit by which they came, and were acknowledged since the last call.
  [[nodiscard]] std::uint32_t take_freed() noexcept { return std::exchange(freed_, 0); }
  /// The rank has all that it did not acknowledge, or nobody waits for it any more.
  void drop_all() noexcept;
  /// Packets go there by another path from now on.
  /// @param resend  the old one is silent: what is in flight is sent again.
  void on_path_changed(bool resend, TimeNs now) noexcept;
  /// The way there has changed: whatever was sent last is sent there now, without waiting for the
  /// timer, which has doubled while the old way led nowhere.
  void probe_at_once() noexcept { probes_wanted_ = std::max(probes_wanted_, 1u); }
  /// The rank is to tell what it called as that op: at once, and again until another is asked for.
  /// 0: nothing is asked any more.
  void ask_for_call(std::uint64_t op_seq) noexcept {
    asks_at_once_ = op_seq != 0 && (asks_at_once_ || op_seq != asks_for_);
    asks_for_ = op_seq;
  }
  [[nodiscard]] bool asks_at_once() const noexcept { return asks_at_once_ && sender_.has_room(); }

 private:
  /// What goes before chunks of one op and length.
  struct Headers {
    std::uint64_t op_seq = 0;
    std::uint32_t bytes = 0;
    std::uint32_t frames_made = 0;
    std::array<std::byte, wire::kMaxFrameHeaderBytes> frame{};
    wire::DataTemplate data;
  };

  /// The rank would refuse a chunk of an op that is further ahead than its descriptors are kept.
  /// Such a chunk would be sent again and again, and take the window, the records and the path from
  /// the older ops that the rank needs before it can post that one.
  [[nodiscard]] bool may_go_early(const Op& op) const noexcept {
    return eager_ < config_.eager_packets &&
           op.spec.op_seq <= sender_.posted_op_seq() + OpTable::kDescriptorsKept;
  }
  [[nodiscard]] std::uint32_t wire_bytes(std::uint32_t payload_bytes) const noexcept {
    return static_cast<std::uint32_t>(end_.address().frame.bytes() + wire::kHeaderBytes) +
           payload_bytes * config_.payload_scale + end_.tag_bytes();
  }
  void release_grants(std::uint64_t posted_before) noexcept;
  [[nodiscard]] SendOutcome apply(const transport::Outcome& outcome) noexcept;
  /// What goes before the chunk: it holds until another op's, or another length's, are asked for.
  [[nodiscard, gnu::always_inline]] inline const Headers& headers_of(
      const ReadyChunk& chunk) noexcept;
  /// @param headers     headers_of() the chunk.
  /// @param wire_bytes  of the chunk.
  /// @return whether there was a buffer for it, if it needs one.
  [[gnu::always_inline]] inline bool transmit(SentRecord& record, const Headers& headers,
                                              std::uint32_t wire_bytes, TimeNs now,
                                              OutboxSide& box) noexcept;
  bool transmit_again(SentRecord& record, TimeNs now, OutboxSide& box) noexcept;
  [[gnu::noinline]] rte_mbuf* make_frame(ReadyChunk& chunk) noexcept;
  /// @param mbuf     the chunk's, of its header alone, or another one.
  /// @param payload  where it lies, or will lie, in that buffer.
  [[gnu::always_inline]] inline void write_frame(rte_mbuf* mbuf, std::byte* payload,
                                                 const ReadyChunk& chunk, const Headers& headers,
                                                 std::uint64_t packet_number) noexcept;
  /// As transmit(), of a packet whose payload is encrypted: the chunk keeps its own, since it may
  /// have to be sent again.
  [[gnu::noinline]] bool transmit_encrypted(SentRecord& record, const Headers& headers,
                                            std::uint32_t wire_bytes, TimeNs now,
                                            OutboxSide& box) noexcept;
  [[gnu::always_inline]] inline void note_sent(const ReadyChunk& chunk, TimeNs now) noexcept;
  void make_headers(const ReadyChunk& chunk, Headers& headers) const noexcept;
  void send_ping(TimeNs now, OutboxSide& box) noexcept;

  const ShardConfig& config_;
  LinkEnd& end_;
  const PacketBuffers& buffers_;
  OpTable& ops_;
  ShardCounters& counters_;
  transport::Sender sender_;
  InFlight in_flight_;
  FixedQueue<ReadyChunk> ready_;     ///< transit, and own or spilled chunks that are loaded
  std::uint32_t promised_ = 0;       ///< places in it that work in the backend will take
  std::uint32_t eager_ = 0;          ///< chunks that went ahead of their grant
  std::uint64_t distinct_sent_ = 0;  ///< first transmissions
  std::uint32_t probes_wanted_ = 0;
  std::uint32_t freed_ = 0;
  std::uint64_t left_to_transit_ = 1;  ///< credit that own chunks of an op that holds do not take
  TimeNs last_sent_ = 0;
  std::uint64_t asks_for_ = 0;      ///< pings do
  std::array<Headers, 2> headers_;  ///< by the op's number: chunks of two may go by turns
  bool asks_at_once_ = false;
  TimeNs asked_at_ = 0;
};

}  // namespace gradwire::collective
