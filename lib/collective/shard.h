// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One group's share on one lane: it puts together the links to other ranks, membership, ops and
/// folds, each a class of its own, and decides what is done with a packet and what goes out next.
/// It takes decoded packets and time, and gives frames ready to transmit and events. It knows no
/// port, clock, socket or thread, so the simulator runs the very same object.
///
/// create() runs on the control thread and is the only place that allocates (mempools apart); from
/// then on one lane owns the object; every other call is noexcept and bounded.
///
///   shard.cc          creation, posting, lifecycle, rounds
///   shard_receive.cc  what a received packet does
///   shard_fold.cc     what is done with payloads, and what follows when the backend is through
///   shard_direct.cc   direct ops, whose packets go between any two ranks
///   shard_folding.cc  a rank without members, which posts what others tell of
///   shard_transfers.cc  transfers between processes, each pair with an order of its own
///   shard_send.cc     what starts, in which order
///   shard_calls.cc    whether the next rank calls what this one does
///   shard_watch.cc    status, the next deadline, and a group in which nothing moves
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/abort_reason.h"
#include "base/result.h"
#include "collective/direct/direct.h"
#include "collective/event_queue.h"
#include "collective/links/packet_buffers.h"
#include "collective/links/packet_source.h"
#include "collective/links/peer_ends.h"
#include "collective/membership/abort_answers.h"
#include "collective/membership/group.h"
#include "collective/membership/membership.h"
#include "collective/membership/stall_watch.h"
#include "collective/neighbors/neighbors.h"
#include "collective/neighbors/rails.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_spec.h"
#include "collective/ops/op_table.h"
#include "collective/ring/arrival.h"
#include "collective/ring/call_watch.h"
#include "collective/ring/early_packets.h"
#include "collective/ring/payload_checks.h"
#include "collective/ring/posted_words.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "collective/transfers/transfers.h"
#include "reduce/backend.h"
#include "wire/packet.h"

namespace gradwire::collective {

class Shard {
 public:
  /// Checks the configuration's bounds. nranks 1 has no neighbours: templates and tokens are
  /// unused.
  [[nodiscard]] static Result<std::unique_ptr<Shard>> create(
      const ShardConfig& config, std::unique_ptr<reduce::Backend> backend);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  void start(TimeNs now) noexcept;

  /// Posts the next op. Copies `called`.
  [[nodiscard]] PostResult post(const OpSpec& called, TimeNs now) noexcept;

  /// Posts one end of a transfer, whatever ops are posted. Copies `spec`.
  [[nodiscard]] PostResult post(const TransferSpec& spec, TimeNs now) noexcept;

  /// Whose a packet of this group's tag is, by its rank, address and token.
  /// @param source  the IP address it came from.
  [[nodiscard]] PacketSource source_of(const wire::CommonHeader& header,
                                       const wire::IpAddress& source) const noexcept;
  /// Takes a received frame and owns it from then on. `packet` is its decoded form, pointing into
  /// it; one that no neighbour sent is counted and dropped, and its body need not be decoded. Work
  /// on payloads waits for flush().
  void on_packet(rte_mbuf* frame, const wire::Packet& packet, const PacketSource& from, bool ecn_ce,
                 TimeNs now) noexcept;
  /// Somebody at `source` speaks another version: if a neighbour has that address, the error of a
  /// group that does not form says so.
  void on_other_version(const wire::IpAddress& source, std::uint8_t version) noexcept {
    neighbors_.on_other_version(source, version);
  }
  /// As Neighbors.
  void on_other_group(const wire::IpAddress& source, const GroupKey& key) noexcept {
    neighbors_.on_other_group(source, key);
  }
  void on_unfit_hello(const wire::IpAddress& source, std::uint16_t says_rank) noexcept {
    neighbors_.on_unfit_hello(source, says_rank);
  }
  /// End of a receive burst: reduces and stores what it brought.
  void flush(TimeNs now) noexcept;

  /// Sends what may go: acknowledgements, retransmissions, transit, spilled chunks, own chunks;
  /// handles timers. `idle`: no packet came in this round. Call it every round of the loop.
  /// @return whether it did anything.
  bool poll(TimeNs now, bool idle, Outbox& out) noexcept;
  /// Earliest time at which poll() has something to do without a packet or a post; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept;

  /// The way to a rank's address has changed: packets that go there begin with `frame` from now on,
  /// those that are sent again too. As long as the frame that it replaces.
  void lead_to(std::uint16_t rank, const wire::IpAddress& ip,
               const wire::FrameTemplate& frame) noexcept;

  /// Whether packets go to some rank by more than one path. Then the lane asks before each poll by
  /// which of its ports the frames of Outbox::down() and up() go.
  [[nodiscard]] bool has_rails() const noexcept { return rails_.several_paths(); }
  [[nodiscard]] std::uint16_t down_port() const noexcept { return rails_.down_port(); }
  [[nodiscard]] std::uint16_t up_port() const noexcept { return rails_.up_port(); }

  /// Ends the group on this rank with an error and tells all neighbors.
  void abort(const AbortReason& reason, TimeNs now) noexcept;
  /// Nothing more will be posted: finish, say bye, close. Unfinished ops at that time abort.
  void leave(TimeNs now) noexcept;

  /// @return whether an event was taken.
  [[nodiscard]] bool pop_event(Event& out) noexcept {
    return pop_transfer_done(out) || events_.pop(out);
  }

  [[nodiscard]] const AbortReason& reason() const noexcept { return membership_.reason(); }
  [[nodiscard]] const ShardConfig& config() const noexcept { return config_; }
  [[nodiscard]] const ShardCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const char* backend_name() const noexcept { return folds_.backend().name(); }
  /// Whether packets come though no op is unfinished that was posted here: of transfers, or of ops
  /// of which a rank without members hears by packets alone.
  [[nodiscard]] bool expects_packets() const noexcept {
    return config_.folds_only() || (transfers_ != nullptr && transfers_->unfinished());
  }
  /// Whether a backend has folds that it has not done: never one that runs at once.
  [[nodiscard]] bool folding() const noexcept { return folds_.size() != 0; }
  [[nodiscard]] ShardStatus status(TimeNs now) const noexcept;
  /// Whether chunks of ops up to that one went round the ring and are not acknowledged yet.
  [[nodiscard]] bool has_in_flight(std::uint64_t op_seq) const noexcept;

 private:
  Shard(const ShardConfig& config, std::unique_ptr<reduce::Backend> backend);

  [[nodiscard]] const Links& links() const noexcept { return neighbors_.links(); }

  // shard.cc
  [[nodiscard]] bool live() const noexcept { return group_.live(); }
  /// Whether an abort's ranks are the group's.
  [[nodiscard]] bool names_ranks(const AbortReason& reason) const noexcept {
    return reason.culprit_rank < config_.all_ranks() && reason.reporter_rank < config_.all_ranks();
  }
  void count_drop(wire::Drop drop) noexcept { ++counters_.drops[static_cast<int>(drop)]; }
  void finish_if_done(Op& op) noexcept;
  void abort_if(const Membership::Cause& cause, TimeNs now) noexcept;
  void drop_everything() noexcept;
  /// What all ranks have posted may have become more.
  void on_words(TimeNs now) noexcept {
    if (admitted_up_to_ < last_waiting_) admit(now);
  }
  void admit(TimeNs now) noexcept;
  /// Whether the next rank has to say something before an op here can go on or end.
  [[nodiscard]] bool waits_for_word() const noexcept;

  // shard_receive.cc
  /// What is done with a packet whose token, address and state are right.
  /// @param[out] taken  the frame was taken too.
  [[nodiscard, gnu::always_inline]] inline wire::Drop receive(const PacketSource& from,
                                                              rte_mbuf* frame,
                                                              const wire::Packet& packet,
                                                              bool ecn_ce, TimeNs now,
                                                              bool& taken) noexcept;
  /// @param checked  its payload is known to be right, and `frame` is the payload's mbuf.
  /// @return whether the frame was taken.
  bool receive_data(Link& link, rte_mbuf* frame, const wire::Packet& packet, bool ecn_ce,
                    bool checked, TimeNs now) noexcept;
  /// @param op  nullptr: it is done.
  [[nodiscard]] Arrival arrival_of(const Op* op, const wire::DataHeader& header,
                                   Site& site) const noexcept;
  bool hold_early(Link& link, rte_mbuf* frame, const wire::Packet& packet, bool ecn_ce,
                  bool checked, TimeNs now) noexcept;
  void count_received(const wire::Packet& packet, bool ecn_ce) noexcept;
  /// The next rank has posted more: ops above `granted_before` may have waited for that alone.
  void finish_granted(const LinkSender& to, std::uint64_t granted_before) noexcept;
  /// A hello, or the answer to one. @return why it was dropped.
  [[nodiscard, gnu::noinline]] wire::Drop receive_hello(const PacketSource& from,
                                                        const wire::Packet& packet,
                                                        TimeNs now) noexcept;
  void receive_ack(Link& link, const wire::AckHeader& ack, TimeNs now) noexcept;
  void receive_question(const wire::ProgressCheckBody& check, TimeNs now) noexcept;
  void receive_bye(LinkIndex index, const wire::ByeBody& bye, TimeNs now) noexcept;
  void apply_early(std::uint64_t op_seq, TimeNs now) noexcept;
  /// Takes what came early and could not be taken when its op was posted.
  void retry_early(TimeNs now) noexcept;
  /// @param rank  whose packet says so.
  /// @param theirs  what it called
  /// @param culprit  of two neighbours the upstream one
  /// If the first op that differs cannot be told: it is one of those from calls_.first() to `last`.
  void report_mismatch_among(const char* what, std::uint16_t rank, std::uint64_t last,
                             TimeNs now) noexcept;
  void report_mismatch(std::uint16_t rank, std::uint64_t op_seq, const OpCall& ours,
                       const OpCall& theirs, std::uint16_t culprit, TimeNs now) noexcept;
  /// What the next rank called, and what was called here, may have become known.
  void compare_calls(TimeNs now) noexcept;
  /// Up to which op it is known to call the same; all of them if nobody compares.
  [[nodiscard]] std::uint64_t agreed() const noexcept {
    return compares_calls_ ? calls_.agreed() : UINT64_MAX;
  }

  // shard_direct.cc: if there is a direct_
  void start_direct(Op& op, TimeNs now) noexcept;
  void note_progress(Op& op, Direct::Progress progress, TimeNs now) noexcept;
  void complete_direct(const Folded& done, TimeNs now) noexcept;
  void count_off_ring(const Op& op) noexcept;
  void apply_ahead(std::uint64_t op_seq, TimeNs now) noexcept;
  [[nodiscard]] wire::Drop receive_direct(const wire::Packet& packet, bool ecn_ce,
                                          TimeNs now) noexcept;
  /// @param crc  of the payload; none if it is known to be right.
  [[nodiscard]] wire::Drop take_contribution(std::uint16_t rank, const wire::DataHeader& header,
                                             std::span<const std::byte> payload,
                                             std::optional<std::uint32_t> crc, TimeNs now) noexcept;
  bool run_direct(TimeNs now, Outbox& out) noexcept;

  // shard_folding.cc: if it folds only
  void post_told(TimeNs now) noexcept;
  void refuse_told(std::uint16_t rank, const OpSpec& spec, PostResult why, TimeNs now) noexcept;
  [[nodiscard]] bool was_skipped(std::uint64_t op_seq) const noexcept;
  void report_skipped(std::uint16_t rank, const wire::DataHeader& theirs, TimeNs now) noexcept;

  // shard_transfers.cc: if there are transfers_
  /// A packet of those that go between any two ranks.
  [[nodiscard, gnu::noinline]] wire::Drop receive_from_any(const wire::Packet& packet, bool ecn_ce,
                                                           TimeNs now) noexcept;
  [[nodiscard]] bool pop_transfer_done(Event& out) noexcept;
  bool run_transfers(TimeNs now, Outbox& out) noexcept;
  /// Ends the group if the ends of a transfer differ.
  void judge_transfers(TimeNs now) noexcept;

  // shard_fold.cc
  /// Claims the chunk and queues its work. Owns the mbuf unless it returns false (no buffer).
  bool apply(Op& op, const wire::DataHeader& header, Arrival arrival, const Site& site,
             rte_mbuf* mbuf, std::byte* payload, std::uint32_t crc, TimeNs now) noexcept;
  /// Claims a chunk that goes on, and keeps its packet. @return whether there was room.
  [[gnu::noinline]] bool hold(Op& op, const Site& site, const EarlyPacket& packet) noexcept;
  /// Applies what is held, as far as it may go on now.
  void release_held(TimeNs now) noexcept;
  [[nodiscard]] bool held_may_go() const noexcept {
    return !held_.empty() && !folds_.full() && has_transit_room(links()[held_to_]->sender());
  }
  /// Credit that chunks held until the next rank acknowledged them.
  void return_credit(LinkSender& from) noexcept;
  /// Chunks that wait to go on, or will.
  [[nodiscard]] std::size_t in_transit() const noexcept;
  /// Whether a chunk that goes on may wait in its own mbuf: the budget of buffers has room for it.
  [[nodiscard]] bool has_transit_room(const LinkSender& to) const noexcept {
    return to.waiting() + early_.transit_taken() < config_.transit_packets;
  }
  /// Whether a chunk ahead of its grant may go on in its packet. It keeps its place at the next
  /// rank until a client posts, and chunks that cannot be spilled may need that place: while an op
  /// has such chunks, one ahead of its grant is spilled, and starts if nothing waits for its place.
  [[nodiscard]] bool may_go_on_early() const noexcept { return last_waiting_ <= ops_.done(); }
  void queue_fold(FoldWork& work, reduce::Kind kind, Op& op, const ChunkSpan& span, bool finalize,
                  TimeNs now) noexcept;
  /// Gives the backend what waits for it, and does what follows of what it is through with.
  void fold(TimeNs now) noexcept;
  void take_folded(TimeNs now) noexcept;
  void complete(const Folded& done, TimeNs now) noexcept;
  /// The buffer of a chunk that another rank sent is free, or holds what goes on.
  void finish_arrival(const Op& op) noexcept {
    LinkReceiver& from = links()[op.rules.from]->receiver();
    from.finish_chunk();
    if (!folds_.runs_at_once()) from.tell_credit();
  }
  [[nodiscard]] const std::byte* loaded_next(const Op& op, const ReadyChunk& chunk) const noexcept;
  void complete_check(const Folded& done, TimeNs now) noexcept;
  void abort_for_fold(std::uint64_t op_seq, TimeNs now) noexcept;
  /// Receives packets whose payloads have turned out right.
  void receive_checked(TimeNs now) noexcept;

  // shard_send.cc
  /// Whether every rank that data goes to has said where to.
  [[nodiscard]] bool may_send_data() const noexcept;
  bool send_data(TimeNs now, Outbox& out) noexcept;
  bool start_spilled(TimeNs now, Outbox& out) noexcept;
  bool start_own(TimeNs now, Outbox& out) noexcept;
  bool fold_local(TimeNs now) noexcept;
  /// Takes an mbuf for chunk `chunk` and queues the entry that fills it.
  bool start_outgoing(Op& op, LinkSender& to, std::uint64_t chunk, std::uint16_t hop,
                      reduce::Kind kind, TimeNs now) noexcept;
  /// Whether the oldest spilled chunk has a grant. One that has none waits for another rank's
  /// client, and must hold back nothing that this client may wait for.
  [[nodiscard]] bool spilled_may_go() const noexcept;
  /// What starts here is copied to where it ends here, too. There is a place in the fold queue.
  void copy_own(Op& op, std::uint64_t chunk, TimeNs now) noexcept;
  [[nodiscard]] LinkSender& sender_of(const Op& op) const noexcept {
    return links()[op.rules.to]->sender();
  }

  // shard_watch.cc
  /// Whether something is there to be sent, and nothing but pacing or this rank's own buffers
  /// keep it: neither another rank nor a client has to do anything first.
  [[nodiscard]] bool something_may_go(const LinkSender& to) const noexcept;
  /// Whether the next step of the oldest op is another rank's: to grant, to acknowledge.
  [[nodiscard]] bool waits_for_others() const noexcept;
  /// A neighbour left and said that it was done with an op, and the op needs more of it.
  [[nodiscard]] Membership::Cause left_too_early() const noexcept;
  /// @return time that this lane has polled since the last call.
  TimeNs account_round(TimeNs now) noexcept;
  bool send_questions(Outbox& out) noexcept;
  void become_stuck(TimeNs now) noexcept;

  const ShardConfig config_;
  ShardCounters counters_;
  PacketBuffers buffers_;
  FoldQueue folds_;
  OpTable ops_;
  Group group_;
  Neighbors neighbors_;
  Rails rails_;
  std::unique_ptr<PeerEnds> ends_;               ///< nullptr: packets go between neighbors alone
  std::unique_ptr<AbortAnswers> abort_answers_;  ///< if there are ends_
  std::unique_ptr<Direct> direct_;               ///< nullptr: no op is direct
  std::unique_ptr<Transfers> transfers_;         ///< nullptr: there are none
  EarlyPackets early_;
  std::vector<std::uint16_t> told_by_;  ///< by op_seq: who told of it, if this rank folds only
  FixedQueue<EarlyPacket> held_;        ///< claimed chunks that wait in their packets to go on
  LinkIndex held_to_ = 0;               ///< the link by which they will go
  PostedByAll posted_by_all_;
  std::uint64_t last_waiting_ = 0;  ///< the last op posted that waits for all
  std::uint64_t last_one_way_ = 0;
  CallWatch calls_;                  ///< of the next rank
  bool compares_calls_ = false;      ///< there is a next rank on a ring that this one is part of
  std::uint64_t last_compared_ = 0;  ///< the last op that has to be agreed on
  std::uint64_t agreed_up_to_ = 0;   ///< ops up to here know that they are
  std::uint64_t admitted_up_to_ = 0;
  bool direct_went_ = false;  ///< direct ops sent something after transfers did
  PayloadChecks checks_;
  wire::Packet checked_packet_;  ///< receive_checked()'s: it is large
  EventQueue events_;
  Membership membership_;
  StallWatch stall_;
  TimeNs last_poll_ = 0;
};

}  // namespace gradwire::collective
