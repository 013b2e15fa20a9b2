// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Ops by tiles: owners pull parts of all ranks and fold them, and ranks pull the results.
/// doc/protocol/tiles.md is the specification.
///
/// A rank without members owns, and neither gives parts nor pulls results. Others tell it of ops
/// by their calls, which its shard posts (ToldOps); here it is an owner like any other, but for
/// where its results lie.
///
/// Every packet tells the whole state of one end of one op, so a later one makes a lost one good.
/// Nothing is kept of what is on its way: a piece is made from the client's memory whenever it is
/// pulled. What is pulled, TilePulls decides; when tiles start and are folded, TileOwner.
///
/// Its links find who is silent, and it finds calls that differ; its shard aborts. One lane owns
/// it; it allocates at construction only; time is a parameter. In a round it looks at a bounded
/// number of ranks, and it has one deadline. An op that enters is the one thing that looks at all
/// ranks.
///
///   tiles.cc          ops: they enter, are done, are over
///   tiles_hosts.cc    what ranks without members are told
///   tiles_receive.cc  what a packet does
///   tiles_words.cc    what is said, and when again
///   tiles_send.cc     packets
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collective/fixed_queue.h"
#include "collective/links/packet_buffers.h"
#include "collective/links/peer_links.h"
#include "collective/links/port_turns.h"
#include "collective/links/pull_window.h"
#include "collective/links/sweep.h"
#include "collective/links/told_order.h"
#include "collective/links/word_turns.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_table.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "collective/tiles/tile_formats.h"
#include "collective/tiles/tile_ops.h"
#include "collective/tiles/tile_owner.h"
#include "collective/tiles/tile_pulls.h"
#include "transport/pacer.h"
#include "wire/packet.h"

namespace gradwire::collective {

class Tiles final : public PeerUser, public LateUser {
 public:
  /// @param config  of a group that has tiles; the shard's other parts outlive it.
  Tiles(const ShardConfig& config, PeerLinks& links, PullWindow& window,
        const PacketBuffers& buffers, OpTable& ops, FoldQueue& folds, ToldOrder& told_order,
        ShardCounters& counters);

  // Ops.
  /// An op by tiles was posted: it enters now, or when older ones are over.
  void post(std::uint64_t op_seq, TimeNs now) noexcept;
  /// @return whether the end of an op was taken: nobody reads or writes its memory here any more.
  [[nodiscard]] bool pop_done(std::uint64_t& op_seq) noexcept;
  /// Whether no rank needs anything of this one any more.
  [[nodiscard]] bool idle() const noexcept {
    return table_.size() == 0 && waiting_.empty() && owing_ == 0;
  }

  // Packets.
  /// One of the three types came, of a peer: see PeerEnds::source_of().
  [[nodiscard]] wire::Drop receive(const wire::Packet& packet, bool ecn_ce, TimeNs now) noexcept;
  /// It said bye: it has all that it needs of ops up to that one.
  void on_left(std::uint16_t rank, std::uint64_t completed_op_seq, TimeNs now) noexcept;

  // Time.
  /// @return whether something was sent or folded, or was due.
  bool run(TimeNs now, Outbox& out) noexcept override;
  /// Earliest time at which run() has something to do without a packet or a post; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept;
  /// Nothing more will be posted: whoever stays silent is not waited for.
  void leave() noexcept { leaving_ = true; }
  /// The group ended here.
  void drop_all() noexcept;
  /// Whether something waits for room at the port that others took for some rounds.
  [[nodiscard]] bool starves() const noexcept override { return turns_.starves(); }
  [[nodiscard]] bool waits_for_room() const noexcept override { return turns_.waits_for_room(); }

  // What the links ask.
  [[nodiscard]] bool waits_for(std::uint16_t rank) const noexcept override;
  void ask(std::uint16_t rank, TimeNs now) noexcept override;
  void on_silent(std::uint16_t rank, TimeNs now) noexcept override;

  // After post(), receive() and run(): what ends the group.
  struct Mismatch {
    std::uint16_t rank = 0;
    std::uint64_t op_seq = 0;
    OpCall ours;
    OpCall theirs;
  };
  [[nodiscard]] const std::optional<Mismatch>& mismatch() const noexcept { return mismatch_; }
  /// An op that the backend could not fold; 0: none.
  [[nodiscard]] std::uint64_t failed() const noexcept { return failed_; }
  /// If a rank answers in vain, the op of which chunks were pulled all the time.
  [[nodiscard]] std::uint64_t lacking() const noexcept { return lacking_; }
  /// Whether anything moved since the last call: a chunk came, a tile was folded, or another rank
  /// said something new.
  [[nodiscard]] bool take_moved() noexcept { return std::exchange(moved_, false); }
  /// Of an op that has entered a rank of which something is missing: the first that has not entered
  /// it, else the one of which most is missing.
  struct Missing {
    std::uint16_t rank = 0;
    bool posted = false;  ///< there
    TileProgress progress;
  };
  [[nodiscard]] std::optional<Missing> missing(std::uint64_t op_seq) const noexcept;

 private:
  enum class Sent : std::uint8_t { kYes, kNothing, kBlocked };
  /// Owners tell of what is done when it has been done for so long, if not before.
  static constexpr TimeNs kTellNs = 200'000;
  /// What may be lost is repeated so often before a probe timeout has gone by.
  static constexpr std::uint32_t kSoonTries = 2;
  /// What an answer may take longer than the round trips that were measured, and for each rank.
  static constexpr TimeNs kSoonNs = 200'000;
  static constexpr TimeNs kSoonEachNs = 1'000;

  // tiles.cc
  void enter_more(TimeNs now) noexcept;
  void enter(const Op& op, TimeNs now) noexcept;
  /// What this rank and another have to do with each other in an op that enters.
  void begin_with(TileOp& op, std::uint16_t rank, TimeNs now) noexcept;
  void start_tiles(TimeNs now) noexcept;
  void note_folded(TileOp& op, TimeNs now) noexcept;
  /// Whether pullers are to be told now what is folded.
  [[nodiscard]] bool is_telling_due(const TileOp& op, TimeNs now) const noexcept;
  void tell(TileOp& op) noexcept;
  /// All ranks are to be looked at: there is more to pull, or to tell.
  void begin_spread(TileOp& op) noexcept;
  bool spread(TimeNs now) noexcept;
  void look_at_rank(TileOp& op, std::uint16_t rank, TimeNs now) noexcept;
  /// Something of this owner was taken or heard.
  void note_taken(TileOp& op, std::uint16_t owner, TimeNs now) noexcept;
  void note_puller_has_all(TileOp& op, std::uint16_t puller) noexcept;
  void finish_if_done(TileOp& op) noexcept;
  /// Places that came back are used anew.
  void close_old(TimeNs now) noexcept;
  /// Other ranks that give parts and pull results, which have members; and all that there are to
  /// this one: to one without members no other is.
  [[nodiscard]] std::uint16_t with_members() const noexcept {
    return static_cast<std::uint16_t>(config_.nranks - (config_.folds_only() ? 0 : 1));
  }
  [[nodiscard]] std::uint16_t others() const noexcept {
    return config_.folds_only() ? config_.nranks
                                : static_cast<std::uint16_t>(config_.all_ranks() - 1);
  }
  /// @param ahead  [1, others()]: those without members come last.
  [[nodiscard]] std::uint16_t other(std::uint32_t ahead) const noexcept {
    return static_cast<std::uint16_t>(
        ahead > with_members() ? ahead : (config_.rank + ahead) % config_.nranks);
  }
  [[nodiscard]] bool has_members(std::uint16_t rank) const noexcept {
    return rank < config_.nranks;
  }

  // tiles_hosts.cc: what a source says to owners without members
  void keep_since(const Op& op) noexcept;
  [[nodiscard]] std::size_t since_place(std::uint64_t op_seq, std::uint16_t owner) const noexcept {
    return op_seq % config_.max_active_ops * config_.folding_ranks + owner - config_.nranks;
  }
  void offer_more(std::uint16_t owner, TimeNs now) noexcept;
  void hear_told(std::uint16_t owner, std::uint64_t op_seq, TimeNs now) noexcept;

  // tiles_receive.cc
  [[nodiscard]] wire::Drop receive_piece(const wire::Packet& packet, bool ecn_ce,
                                         TimeNs now) noexcept;
  [[nodiscard]] wire::Drop receive_part(TileOp& op, const wire::Packet& packet, bool ecn_ce,
                                        TimeNs now) noexcept;
  [[nodiscard]] wire::Drop receive_result(TileOp& op, const wire::Packet& packet, bool ecn_ce,
                                          TimeNs now) noexcept;
  /// A chunk of a result goes to the outputs here. @return whether it could.
  [[nodiscard]] bool store(const TileOp& op, const TileCut::Tile& tile, const TileCut::Chunk& chunk,
                           std::span<const std::byte> payload) noexcept;
  [[nodiscard]] wire::Drop receive_call(const wire::Packet& packet, TimeNs now) noexcept;
  void hear_not_entered(std::uint64_t op_seq, std::uint16_t rank) noexcept;
  /// The rank pulls: an older "not entered" may come after that.
  void note_entered(const TileOp& op, std::uint16_t rank, TimeNs now) noexcept;
  [[nodiscard]] wire::Drop receive_pull(const wire::Packet& packet, TimeNs now) noexcept;
  [[nodiscard]] wire::Drop pulled_by_owner(TileOp& op, const wire::Packet& packet,
                                           TimeNs now) noexcept;
  [[nodiscard]] wire::Drop pulled_by_puller(TileOp& op, const wire::Packet& packet,
                                            TimeNs now) noexcept;
  [[nodiscard]] wire::Drop hear_all(std::uint64_t op_seq, std::uint16_t rank, TimeNs now) noexcept;
  void hear_over(std::uint16_t rank, std::uint64_t op_seq, TimeNs now) noexcept;
  /// The op has not entered here, or is over, or has another shape.
  void answer_of_none(const wire::Packet& packet) noexcept;
  /// The op was posted here.
  [[nodiscard]] bool is_by_tiles(std::uint64_t op_seq) const noexcept;
  void take_grant(TileOut& out, const wire::TilePullHeader& pull) noexcept;
  /// Whether the call is what was posted here under that number, or nothing was.
  [[nodiscard]] bool is_call_right(std::uint16_t rank, const wire::TileHeader& header) noexcept;

  // tiles_words.cc
  void queue(std::uint16_t rank) noexcept;
  /// Something new came from there: what was lost is repeated a probe timeout later.
  void has_news(std::uint16_t rank, TimeNs now) noexcept;
  void watch(std::uint16_t rank, TimeNs now) noexcept;
  [[nodiscard]] TimeNs patience(std::uint16_t rank) const noexcept;
  /// Probe timeouts that have gone by there since it said anything new: the first repeats are
  /// sooner.
  [[nodiscard]] std::uint32_t timeouts_of(std::uint16_t rank) const noexcept {
    return std::max(peers_[rank].tries, kSoonTries) - kSoonTries;
  }
  void look_at_watched(TimeNs now) noexcept;
  /// @return whether something is due there, now or later.
  [[nodiscard]] bool repeat(std::uint16_t rank, bool due, TimeNs now) noexcept;
  void want_part_word(const TileOp& op, std::uint16_t source, bool asks) noexcept;
  void want_result_word(const TileOp& op, std::uint16_t owner, bool asks) noexcept;
  void want_call(const TileOp& op, std::uint16_t owner, bool asks) noexcept;
  void want_all(std::uint16_t owner, bool asks) noexcept;
  void pull_more(TimeNs now) noexcept;
  void send_again(TileOp& op, std::uint16_t rank, TileWay way, TimeNs now) noexcept;

  // tiles_send.cc
  [[nodiscard]] bool send_word(TimeNs now, Outbox& out) noexcept;
  [[nodiscard]] bool has_word(std::uint16_t rank) const noexcept;
  [[nodiscard]] bool answers_again(std::uint16_t rank) noexcept;
  [[nodiscard]] Sent send_word_to(std::uint16_t rank, TimeNs now, OutboxSide& box) noexcept;
  [[nodiscard]] Sent send_pull(const TileOp& op, std::uint16_t rank, TileWay way,
                               OutboxSide& box) noexcept;
  [[nodiscard]] Sent send_pull(std::uint16_t rank, wire::TilePullHeader pull,
                               OutboxSide& box) noexcept;
  [[nodiscard]] Sent send_call(std::uint16_t rank, const wire::TileHeader& call, TimeNs now,
                               OutboxSide& box, std::uint32_t* number) noexcept;
  [[nodiscard]] std::uint16_t over_for(std::uint16_t rank, std::uint64_t op_seq) const noexcept;
  void queue_pieces(const TileOp& op, std::uint16_t rank, TileWay way) noexcept;
  [[nodiscard]] bool send_next_piece(TimeNs now, Outbox& out) noexcept;
  [[nodiscard]] bool skip_to_piece(const TileOp& op, std::uint16_t rank, TileWay way,
                                   std::uint32_t& chunk) noexcept;
  [[nodiscard]] Sent send_piece(const TileOp& op, std::uint16_t rank, TileWay way, TimeNs now,
                                Outbox& out) noexcept;
  /// Fills a piece's payload. @return whether it could.
  [[nodiscard]] bool make_piece(const TileOp& op, TileWay way, const TileCut::Tile& tile,
                                const TileCut::Chunk& chunk, std::byte* payload) noexcept;

  const ShardConfig& config_;
  PeerLinks& links_;
  const PacketBuffers& buffers_;
  OpTable& ops_;
  FoldQueue& folds_;
  ToldOrder& told_order_;
  ShardCounters& counters_;
  TileOps table_;
  TileFormats formats_;
  TileOwner owner_;
  TilePulls pulls_;
  std::vector<TilePeer> peers_;  ///< [all ranks]; of this rank nothing
  /// Of ops that are unfinished here, what is said to each rank without members: by op_seq modulo
  /// their number, then by rank.
  std::vector<std::uint8_t> since_;
  FixedQueue<std::uint64_t> waiting_;  ///< ops that are posted and have not entered
  FixedQueue<std::uint64_t> done_;     ///< ops whose end nobody has taken
  std::uint64_t entered_ = 0;        ///< the last op that has entered; all by tiles before it have
  std::uint64_t over_ = 0;           ///< the last op that is over: nothing is known of it
  std::uint32_t owing_ = 0;          ///< ranks that must hear that this one has all
  FixedQueue<std::uint16_t> words_;  ///< ranks to which a word goes
  FixedQueue<std::uint32_t> sending_;  ///< (place of an op x 65,536 + rank) x 2 + way
  Sweep<std::uint16_t> watched_;       ///< ranks where something may be due
  transport::Pacer pacer_;
  TimeNs paced_until_ = 0;
  WordTurns turns_;
  bool leaving_ = false;
  bool moved_ = false;
  bool results_back_ = false;  ///< places for results came back: tiles may start
  std::optional<Mismatch> mismatch_;
  std::uint64_t failed_ = 0;
  std::uint64_t lacking_ = 0;
};

}  // namespace gradwire::collective
