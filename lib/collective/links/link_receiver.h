// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Data from the rank at the other end of a link: packet numbers, acknowledgements, and the credit
/// that is granted to it. One lane owns it; it allocates nothing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collective/links/link_end.h"
#include "collective/links/packet_buffers.h"
#include "collective/ops/op_table.h"
#include "collective/ring/posted_words.h"
#include "collective/shard_config.h"
#include "transport/receiver.h"

namespace gradwire::collective {

class LinkReceiver {
 public:
  LinkReceiver(const ShardConfig& config, LinkEnd& end, const PacketBuffers& buffers) noexcept;

  [[nodiscard]] transport::Receiver& transport() noexcept { return receiver_; }
  [[nodiscard]] const transport::Receiver& transport() const noexcept { return receiver_; }
  /// The other rank asks whether this one is there.
  /// @param asked  wire::Packet::asked_op_seq
  /// @return whether it had not come before.
  bool on_ping(std::uint64_t packet_number, std::uint64_t asked, bool ecn_ce, TimeNs now) noexcept;

  /// A chunk that arrived no longer holds a buffer.
  void finish_chunk() noexcept { ++finished_; }
  void finish_chunks(std::uint32_t chunks) noexcept { finished_ += chunks; }
  /// Absolute number of distinct chunks that the rank may have sent: what was finished, and the
  /// buffers that this shard may hold beside it.
  [[nodiscard]] std::uint64_t credit_limit() const noexcept {
    return finished_ + buffers_.chunks_held();
  }
  /// Chunks that were not there before are kept.
  void take_chunks(std::uint64_t chunks) noexcept { taken_ += chunks; }
  /// If a backend or the next rank frees buffers after the last acknowledgement, no packet would
  /// tell the other rank. So an acknowledgement is sent when a quarter of the window is free, or
  /// sooner if the other rank is about to run out of credit.
  void tell_credit() noexcept {
    const std::uint64_t some = std::max(config_.window_packets / 4, 1u);
    if (credit_limit() - credit_told_ >= some || credit_told_ < taken_ + some) {
      receiver_.request_ack();
    }
  }
  /// Whether an acknowledgement is due, and there is room for it.
  /// @param idle  no packet came in this round.
  [[nodiscard]] bool owes_ack(bool idle, TimeNs now, const OutboxSide& box) const noexcept {
    return end_.greeted() && !box.full() && receiver_.ack_due(now, idle);
  }
  /// @return whether it went.
  bool send_ack(const PostedWords& words, const OpTable& ops, TimeNs now, OutboxSide& box) noexcept;
  /// The words as the last acknowledgement said them, which may have been lost.
  [[nodiscard]] const PostedWords& words_told() const noexcept { return words_told_; }

 private:
  const ShardConfig& config_;
  LinkEnd& end_;
  const PacketBuffers& buffers_;
  transport::Receiver receiver_;
  std::uint64_t finished_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t asked_ = 0;        ///< the other rank asks what was called as this op; 0: none
  std::uint64_t credit_told_ = 0;  ///< credit_limit() as the last acknowledgement said it
  PostedWords words_told_;
  wire::AckHeader ack_;  ///< send_ack()'s, which sets what counts: clearing it costs 1 KiB
#ifdef GRADWIRE_PLANTED_BUGS
  void say_limits_once(wire::AckHeader& ack) noexcept {
    if (ack.credit_chunks == said_credit_chunks_) ack.credit_chunks = 0;
    if (ack.posted_op_seq == said_posted_op_seq_) ack.posted_op_seq = 0;
    said_credit_chunks_ = std::max(said_credit_chunks_, ack.credit_chunks);
    said_posted_op_seq_ = std::max(said_posted_op_seq_, ack.posted_op_seq);
  }
  std::uint64_t said_credit_chunks_ = 0;
  std::uint64_t said_posted_op_seq_ = 0;
#endif
};

}  // namespace gradwire::collective
