// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Transfers between processes: sends and receives of ordered pairs, each pair with a sequence of
/// its own. doc/protocol/transfers.md (Transfers) is the specification.
///
/// Sending: a piece is made from the client's memory whenever it is pulled; nothing is kept of what
/// is on its way. Receiving: pieces are pulled, from a few pairs at a time and within one window,
/// and copied to the client's memory when they come. A pair of this rank's own processes is copied.
///
/// Its links find who is silent, and it finds calls that differ; its shard aborts. One lane owns
/// it; it allocates at construction only; time is a parameter. In a round it looks at those pairs
/// alone that have something to do, and it has one deadline.
///
///   transfers.cc          what is posted, and copied between own processes
///   transfers_receive.cc  what a packet does
///   transfers_send.cc     what is sent, and when
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collective/fixed_queue.h"
#include "collective/links/packet_buffers.h"
#include "collective/links/peer_links.h"
#include "collective/links/sweep.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "collective/transfers/early_pieces.h"
#include "collective/transfers/pair_ends.h"
#include "collective/transfers/pair_table.h"
#include "collective/transfers/pull_window.h"
#include "collective/transfers/transfer.h"
#include "transport/pacer.h"

namespace gradwire::collective {

class Transfers final : public PeerUser {
 public:
  /// Pairs from which chunks are pulled at a time.
  static constexpr std::size_t kTurns = 4;

  /// @param config  whose pairs_max is not 0; the shard's other parts outlive it.
  Transfers(const ShardConfig& config, PeerLinks& links, const PacketBuffers& buffers,
            ShardCounters& counters);

  /// kFull: the pair's transfer before is under way. kTooLarge: more chunks than 32 bits count, or
  /// more pairs than ShardConfig::pairs_max. kRefused: the end is no process of this rank.
  [[nodiscard]] PostResult post(const TransferSpec& spec, TimeNs now) noexcept;
  /// @return whether the end of a transfer was taken: its id.
  [[nodiscard]] bool pop_done(std::uint64_t& id) noexcept;
  /// Whether a transfer is under way; with a rank.
  [[nodiscard]] bool unfinished() const noexcept { return unfinished_ > 0; }
  [[nodiscard]] bool unfinished_with(std::uint16_t rank) const noexcept {
    return peers_[rank].unfinished > 0;
  }
  // What the links ask.
  [[nodiscard]] bool waits_for(std::uint16_t rank) const noexcept override {
    return rank < peers_.size() && unfinished_with(rank);
  }
  void ask(std::uint16_t rank, TimeNs now) noexcept override;
  void on_silent(std::uint16_t rank, TimeNs) noexcept override { links_.found_silent(rank); }
  /// Whether nobody else needs anything of this rank either.
  [[nodiscard]] bool idle() const noexcept { return unfinished_ == 0 && owed_ == 0; }

  /// One of the three types came, of a peer: see PeerEnds::source_of().
  [[nodiscard]] wire::Drop receive(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept;

  /// @return whether something was sent or copied, or was due.
  bool run(TimeNs now, Outbox& out) noexcept;
  /// Earliest time at which run() has something to do without a packet or a post; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept;
  /// The group ended here.
  void drop_all() noexcept;

  // After post(), receive() and run(): what ends the group.
  /// Of a rank that answers in vain: of this transfer, of which chunks were pulled all the time,
  /// nothing came.
  struct Lacking {
    wire::ProcessPair pair;
    std::uint64_t sequence = 0;
  };
  [[nodiscard]] const Lacking& lacking() const noexcept { return lacking_; }
  struct Mismatch {
    wire::ProcessPair pair;
    std::uint16_t rank = 0;  ///< of the other end
    std::uint64_t sequence = 0;
    wire::TransferTerms sent;
    wire::TransferTerms received;
  };
  [[nodiscard]] const std::optional<Mismatch>& mismatch() const noexcept { return mismatch_; }
  /// Whether something waits for room at the port that others took for some rounds.
  [[nodiscard]] bool starves() const noexcept { return blocked_rounds_ >= kBlockedRounds; }
  [[nodiscard]] bool waits_for_room() const noexcept { return blocked_rounds_ > 0; }
  [[nodiscard]] TransferWait oldest() const noexcept;

 private:
  struct Peer {
    std::uint32_t unfinished = 0;  ///< transfers with it
    wire::ProcessPair pair;        ///< one of which an ask may be
    bool pair_goes_out = false;
  };
  enum class Sent : std::uint8_t { kYes, kNothing, kBlocked };
  static constexpr std::uint32_t kBlockedRounds = 8;

  // transfers.cc
  [[nodiscard]] std::uint32_t chunks_of(std::uint64_t bytes) const noexcept;
  [[nodiscard]] std::uint64_t offset_of(std::uint32_t chunk) const noexcept {
    return (std::uint64_t{chunk} * config_.lanes + config_.lane) * config_.payload_bytes;
  }
  [[nodiscard]] std::uint32_t bytes_of(std::uint32_t chunk, std::uint64_t bytes) const noexcept {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(config_.payload_bytes, bytes - offset_of(chunk)));
  }
  [[nodiscard]] PostResult post_send(const TransferSpec& spec, std::uint16_t to,
                                     TimeNs now) noexcept;
  [[nodiscard]] PostResult post_receive(const TransferSpec& spec, std::uint16_t from,
                                        TimeNs now) noexcept;
  [[nodiscard]] PairOrder& order_of(std::uint32_t item) noexcept {
    return item % 2 == 1 ? ins_[item / 2].order : outs_[item / 2].order;
  }
  /// @param item  as PairOrder names it.
  void begin(std::uint32_t item, TimeNs now) noexcept;
  void end(std::uint32_t item) noexcept;
  void end(const OutPair& out) noexcept { end(outs_.index_of(out) * 2); }
  void end(const InPair& in) noexcept { end(ins_.index_of(in) * 2 + 1); }
  void pair_up_here(const wire::ProcessPair& pair) noexcept;
  bool copy_here() noexcept;
  void differ(const InPair& in, const wire::TransferTerms& sent) noexcept;

  // transfers_receive.cc
  [[nodiscard]] bool is_of(const wire::ProcessPair& pair, std::uint16_t source_rank,
                           std::uint16_t destination_rank) const noexcept;
  [[nodiscard]] wire::Drop receive_offer(const wire::Packet& packet, TimeNs now) noexcept;
  [[nodiscard]] wire::Drop receive_piece(const wire::Packet& packet, bool ecn_ce,
                                         TimeNs now) noexcept;
  [[nodiscard]] wire::Drop receive_pull(const wire::Packet& packet, TimeNs now) noexcept;
  [[nodiscard]] wire::Drop hear_offer(InPair& in, const wire::OfferHeader& offer,
                                      TimeNs now) noexcept;
  [[nodiscard]] wire::Drop keep_ahead(InPair& in, const wire::Packet& packet) noexcept;
  void take_ahead(InPair& in, TimeNs now) noexcept;
  [[nodiscard]] bool fits(const InPair& in, std::uint32_t chunk, std::size_t bytes) const noexcept {
    return chunk < in.chunks && chunk - in.first < 64 && bytes == bytes_of(chunk, in.terms.bytes);
  }
  void store(InPair& in, std::uint32_t chunk, std::span<const std::byte> payload,
             TimeNs now) noexcept;
  void become_ready(InPair& in, TimeNs now) noexcept;
  void give_turns(TimeNs now) noexcept;
  void pull_more(TimeNs now) noexcept;
  bool pull_new(InPair& in, TimeNs now) noexcept;
  void pull_again(InPair& in, std::uint64_t chunks, TimeNs now) noexcept;
  void finish(InPair& in, TimeNs now) noexcept;
  void finish(OutPair& out) noexcept;

  // transfers_send.cc
  [[nodiscard]] TimeNs patience(std::uint16_t rank, std::uint32_t tries) const noexcept;
  void queue(OutPair& out) noexcept;
  void queue_pieces(OutPair& out) noexcept;
  void queue(InPair& in) noexcept;
  void watch(OutPair& out, TimeNs due) noexcept;
  void watch(InPair& in, TimeNs due) noexcept;
  void look_at_watched(TimeNs now) noexcept;
  [[nodiscard]] bool look_at(OutPair& out, TimeNs now) noexcept;
  [[nodiscard]] bool look_at(InPair& in, TimeNs now) noexcept;
  [[nodiscard]] Sent send(OutPair& pair, TimeNs now, Outbox& out) noexcept;
  [[nodiscard]] Sent send(InPair& pair, TimeNs now, Outbox& out) noexcept;
  [[nodiscard]] Sent send_piece(OutPair& pair, TimeNs now, Outbox& out) noexcept;
  /// @return whether one was sent.
  bool send_word(TimeNs now, Outbox& out) noexcept;
  bool send_next_piece(TimeNs now, Outbox& out) noexcept;
  /// Whether a question says that those before it were not answered.
  [[nodiscard]] bool says_again(const LinkEnd& end, std::uint32_t tries,
                                std::uint16_t rank) const noexcept;
  [[nodiscard]] static wire::OfferHeader offer_of(const OutPair& pair) noexcept;

  const ShardConfig& config_;
  PeerLinks& links_;
  const PacketBuffers& buffers_;
  const GroupProcesses processes_;
  ShardCounters& counters_;
  PairTable<OutPair> outs_;
  PairTable<InPair> ins_;
  std::vector<Peer> peers_;  ///< [nranks]; of this rank only `unfinished`
  EarlyPieces early_;
  PullWindow window_;
  transport::Pacer pacer_;
  TimeNs paced_until_ = 0;
  FixedQueue<std::uint64_t> done_;  ///< ids
  std::uint32_t unfinished_ = 0;
  std::uint32_t oldest_ = PairOrder::kNobody;  ///< of those under way
  std::uint32_t newest_ = PairOrder::kNobody;
  std::uint32_t owed_ = 0;             ///< pairs whose source must hear of an end
  FixedQueue<std::uint32_t> ready_;    ///< in-pairs that wait for their turn
  std::vector<std::uint32_t> turns_;   ///< in-pairs that have it
  FixedQueue<std::uint32_t> here_;     ///< in-pairs of own processes that are posted twice
  FixedQueue<std::uint32_t> queue_;    ///< pairs that say something: twice the index, and 1 if it
                                       ///< comes in
  FixedQueue<std::uint32_t> sending_;  ///< out-pairs of which pieces are wanted
  Sweep<std::uint32_t> watched_;       ///< likewise
  bool word_was_last_ = false;         ///< of what was sent, and no piece
  std::uint32_t blocked_rounds_ = 0;   ///< in a row in which nothing could be sent that waits
  Lacking lacking_;
  std::optional<Mismatch> mismatch_;
};

}  // namespace gradwire::collective
