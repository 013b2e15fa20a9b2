// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Transfers between processes: sends and receives of ordered pairs, each pair with streams, and
/// each of these with a sequence of its own. `Pair` here is one stream of a pair.
/// doc/protocol/transfers.md (Transfers) is the specification.
///
/// Sending: a piece is made from the client's memory whenever it is pulled; nothing is kept of what
/// is on its way. Receiving: pieces are pulled (Pulls), and copied to the client's memory when they
/// come. A pair of this rank's own processes is copied.
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

#include "collective/fixed_queue.h"
#include "collective/links/packet_buffers.h"
#include "collective/links/peer_links.h"
#include "collective/links/port_turns.h"
#include "collective/links/pull_window.h"
#include "collective/links/word_turns.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "collective/transfers/early_pieces.h"
#include "collective/transfers/pair_ends.h"
#include "collective/transfers/pair_queues.h"
#include "collective/transfers/pair_table.h"
#include "collective/transfers/pulls.h"
#include "collective/transfers/transfer.h"
#include "collective/transfers/transfer_chunks.h"
#include "collective/transfers/under_way.h"
#include "transport/pacer.h"

namespace gradwire::collective {

class Transfers final : public PeerUser, public LateUser {
 public:
  /// @param config  whose pairs_max is not 0; the shard's other parts outlive it.
  Transfers(const ShardConfig& config, PeerLinks& links, PullWindow& window,
            const PacketBuffers& buffers, ShardCounters& counters);

  /// kFull: the pair's transfer before is under way. kTooLarge: more chunks than 32 bits count, or
  /// more pairs than ShardConfig::transfers.pairs_max. kRefused: the end is no process of this
  /// rank.
  [[nodiscard]] PostResult post(const TransferSpec& spec, TimeNs now) noexcept;
  /// @return whether the end of a transfer was taken: its id.
  [[nodiscard]] bool pop_done(std::uint64_t& id) noexcept { return under_way_.pop_done(id); }
  /// Of a receive of at most so many bytes, how many come. It is told before the end.
  struct Sized {
    std::uint64_t id = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] bool pop_sized(Sized& out) noexcept;
  /// Whether a transfer is under way; with a rank.
  [[nodiscard]] bool unfinished() const noexcept { return under_way_.count() > 0; }
  [[nodiscard]] bool unfinished_with(std::uint16_t rank) const noexcept {
    return under_way_.count_with(rank) > 0;
  }
  // What the links ask.
  [[nodiscard]] bool waits_for(std::uint16_t rank) const noexcept override {
    return rank < config_.nranks && unfinished_with(rank);
  }
  void ask(std::uint16_t rank, TimeNs now) noexcept override;
  void on_silent(std::uint16_t rank, TimeNs) noexcept override { links_.found_silent(rank); }
  /// Whether nobody else needs anything of this rank either.
  [[nodiscard]] bool idle() const noexcept { return !unfinished() && owed_ == 0; }

  /// One of the three types came, of a peer: see PeerEnds::source_of().
  [[nodiscard]] wire::Drop receive(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept;

  /// @return whether something was sent or copied, or was due.
  bool run(TimeNs now, Outbox& out) noexcept override;
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
    bool up_to = false;  ///< the receive takes fewer bytes, too
  };
  [[nodiscard]] const std::optional<Mismatch>& mismatch() const noexcept { return mismatch_; }
  [[nodiscard]] bool starves() const noexcept override { return turns_.starves(); }
  [[nodiscard]] bool waits_for_room() const noexcept override { return turns_.waits_for_room(); }
  [[nodiscard]] TransferWait oldest() const noexcept;

 private:
  enum class Sent : std::uint8_t { kYes, kNothing, kBlocked };

  // transfers.cc
  [[nodiscard]] PostResult post_send(const TransferSpec& spec, std::uint16_t to,
                                     TimeNs now) noexcept;
  [[nodiscard]] PostResult post_receive(const TransferSpec& spec, std::uint16_t from,
                                        TimeNs now) noexcept;
  template <class Pair>
  void begin(const Pair& pair, TimeNs now) noexcept {
    const bool is_first = pair.rank != config_.rank && !unfinished_with(pair.rank);
    if (is_first) links_.begin_wait(pair.rank, *this, now);
    under_way_.begin(pair, now);
  }
  void pair_up_here(const wire::ProcessPair& pair) noexcept;
  bool copy_here() noexcept;
  void differ(const InPair& in, const wire::TransferTerms& sent) noexcept;
  /// The source has said how many bytes come, and they are taken.
  void settle_size(InPair& in, std::uint64_t bytes) noexcept;

  // transfers_receive.cc
  [[nodiscard]] wire::Drop receive_offer(const wire::Packet& packet, TimeNs now) noexcept;
  [[nodiscard]] wire::Drop receive_piece(const wire::Packet& packet, bool ecn_ce,
                                         TimeNs now) noexcept;
  [[nodiscard]] wire::Drop receive_pull(const wire::Packet& packet, TimeNs now) noexcept;
  [[nodiscard]] wire::Drop hear_offer(InPair& in, const wire::OfferHeader& offer,
                                      TimeNs now) noexcept;
  [[nodiscard]] wire::Drop keep_ahead(InPair& in, const wire::Packet& packet) noexcept;
  void take_ahead(InPair& in, TimeNs now) noexcept;
  [[nodiscard]] bool fits(const InPair& in, std::uint32_t chunk, std::size_t bytes) const noexcept {
    return chunk < in.chunks && chunk - in.first < 64 &&
           bytes == chunks_.bytes_of(in.pair, chunk, in.terms.bytes);
  }
  void store(InPair& in, std::uint32_t chunk, std::span<const std::byte> payload,
             TimeNs now) noexcept;
  void become_ready(InPair& in, TimeNs now) noexcept;
  void finish(InPair& in, TimeNs now) noexcept;
  void finish(OutPair& out) noexcept;

  // transfers_send.cc
  void look_at_watched(TimeNs now) noexcept;
  [[nodiscard]] bool look_at(OutPair& out, TimeNs now) noexcept;
  [[nodiscard]] bool look_at(InPair& in, TimeNs now) noexcept;
  [[nodiscard]] Sent send(OutPair& pair, TimeNs now, Outbox& out) noexcept;
  [[nodiscard]] Sent send(InPair& pair, TimeNs now, Outbox& out) noexcept;
  [[nodiscard]] Sent send_piece(OutPair& pair, TimeNs now, Outbox& out) noexcept;
  /// @return whether one was sent.
  bool send_word(TimeNs now, Outbox& out) noexcept;
  bool send_next_piece(TimeNs now, Outbox& out) noexcept;

  const ShardConfig& config_;
  PeerLinks& links_;
  const PacketBuffers& buffers_;
  const GroupProcesses processes_;
  ShardCounters& counters_;
  const TransferChunks chunks_;
  PairTable<OutPair> outs_;
  PairTable<InPair> ins_;
  UnderWay under_way_;
  EarlyPieces early_;
  PairQueues queues_;
  Pulls pulls_;
  transport::Pacer pacer_;
  TimeNs paced_until_ = 0;
  std::uint32_t owed_ = 0;          ///< pairs whose source must hear of an end
  FixedQueue<std::uint32_t> here_;  ///< in-pairs of own processes that are posted twice
  FixedQueue<Sized> sized_;
  WordTurns turns_;
  Lacking lacking_;
  std::optional<Mismatch> mismatch_;
};

}  // namespace gradwire::collective
