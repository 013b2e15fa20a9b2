// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What goes round the ring: chunks that come from the rank before are checked, folded into this
/// rank's part and go on to the next; own chunks start here. In a group of one rank they are folded
/// from inputs into outputs. A rank without members has no ring.
///
/// An arriving chunk is claimed in its op's bitmap in the step in which its packet is taken, so it
/// is applied once however often it comes. What cannot be applied yet waits: in its packet before
/// it is claimed (EarlyPackets), or after (held chunks), or in the op's output (spilled).
///
/// It ends the group by ShardServices::abort(), after which it holds nothing. One lane owns it; it
/// allocates at construction only; time is a parameter.
///
///   ring.cc          posting, deadlines, status
///   ring_receive.cc  what a received packet does
///   ring_fold.cc     what is done with payloads
///   ring_work.h      the work of one chunk, and what follows when the backend is through
///   ring_send.cc     what starts, in which order
///   ring_words.cc    who has posted and called what
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>

#include "collective/fixed_queue.h"
#include "collective/links/data_run.h"
#include "collective/links/packet_buffers.h"
#include "collective/membership/group.h"
#include "collective/membership/membership.h"
#include "collective/membership/stall_watch.h"
#include "collective/neighbors/neighbors.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_ends.h"
#include "collective/ops/op_table.h"
#include "collective/ring/arrival.h"
#include "collective/ring/early_packets.h"
#include "collective/ring/payload_checks.h"
#include "collective/ring/ring_words.h"
#include "collective/shard_config.h"
#include "collective/shard_services.h"
#include "collective/shard_status.h"
#include "wire/packet.h"

namespace gradwire::collective {

class Ring {
 public:
  /// All of them outlive it.
  Ring(const ShardConfig& config, const Group& group, Neighbors& neighbors,
       const PacketBuffers& buffers, OpTable& ops, FoldQueue& folds, OpEnds& op_ends,
       StallWatch& stall, Membership& membership, ShardServices& services, ShardCounters& counters);
  ~Ring() { drop_all(); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// The last op of the table was posted, whatever its shape.
  void on_posted(Op& op, TimeNs now) noexcept;

  // Packets, while the group is live.
  /// Data of a link of the ring, from which a hello came.
  /// @return how many packets of the run it took care of, and of their frames: all, unless the
  /// group ended on the way.
  std::size_t receive_data(const DataRun& run, TimeNs now) noexcept;
  /// An acknowledgement of a link of the ring, which its sender has taken.
  /// @param granted_before  what the next rank had posted, as far as was known before.
  void on_ack(Link& link, const wire::AckHeader& ack, std::uint64_t granted_before,
              TimeNs now) noexcept;
  /// The next rank has posted more: ops above `granted_before` may have waited for that alone.
  void on_granted(const LinkSender& to, std::uint64_t granted_before) noexcept;
  /// The first bye of a neighbor on the ring. It comes before on_left().
  void compare_last(const Link& link, const wire::ByeBody& bye, TimeNs now) noexcept {
    if (group_.live() && link.gets_data()) words_.compare_last(bye, now);
  }
  void on_left(Link& link, const wire::ByeBody& bye, TimeNs now) noexcept;

  // Folds.
  /// The backend has done a work that is no direct op's.
  void on_folded(const Folded& done, TimeNs now) noexcept {
    if (done.work->role == FoldWork::Role::kCheck) {
      complete_check(done, now);
    } else {
      complete(done, now);
    }
  }
  /// Receives packets whose payloads have turned out right.
  void receive_checked(TimeNs now) noexcept {
    if (!checks_.empty()) take_checked(now);
  }

  // Time.
  /// Sends what may go round. @return whether it did anything.
  bool run(TimeNs now, Outbox& out) noexcept;
  /// In a group of one rank: folds own chunks. @return whether it did anything.
  bool fold_local(TimeNs now) noexcept;
  /// In a group of one rank: whether fold_local() has something to do.
  [[nodiscard]] bool may_fold_local() const noexcept {
    return folds_.size() < folds_.places() / 2 && ops_.peek_own() != nullptr;
  }
  /// Whether run() has something to do that is not to be sent.
  [[nodiscard]] bool has_work() const noexcept {
    return !checks_.empty() || (!folds_.full() && early_.op_that_may_go(ops_) != 0) ||
           held_may_go();
  }
  /// Earliest time at which run() has something to send without a packet or a post; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept;
  [[nodiscard]] PostedWords words() const noexcept { return words_.words(); }
  /// A neighbor left and said that it was done with an op, and the op needs more of it.
  [[nodiscard]] Membership::Cause left_too_early() const noexcept;
  [[nodiscard]] std::size_t early_held() const noexcept { return early_.size(); }
  [[nodiscard]] bool is_posted_onwards(std::uint64_t op_seq) const noexcept {
    return words_.is_posted_onwards(op_seq);
  }
  /// The group ended here.
  void drop_all() noexcept;

 private:
  [[nodiscard]] const Links& links() const noexcept { return neighbors_.links(); }
  [[nodiscard]] bool live() const noexcept { return group_.live(); }
  [[nodiscard]] LinkSender& sender_of(const Op& op) const noexcept {
    return links()[op.rules.to]->sender();
  }

  /// The links by which an op's chunks go from here and come here, of those that are needed.
  struct Ends {
    LinkSender* to = nullptr;
    LinkReceiver* from = nullptr;
  };
  [[nodiscard]] Ends ends_of(const Op& op) const noexcept {
    return {&sender_of(op), &links()[op.rules.from]->receiver()};
  }

  // ring_receive.cc
  /// What holds for all packets of an op that come by a link one after the other, while nothing
  /// else is done.
  struct Arriving {
    enum class Fate : std::uint8_t {
      kGoesIn,           ///< if it is right, new, and is not to wait for this rank's own part
      kFarAhead,         ///< of an op so far ahead that it is refused
      kToBeChecked,      ///< the GPU makes its CRC first
      kEarly,            ///< of an op that is not posted here
      kCalledOtherwise,  ///< the rank before called something else
    };
    Link& link;
    LinkReceiver& from;
    transport::AcceptedRun accepted;
    Op* op = nullptr;  ///< nullptr, or not active any more: it is done
    Ends ends{};       ///< of the op
    Fate fate = Fate::kGoesIn;
    std::uint64_t kept = 0;  ///< packets that are not counted yet
    bool checked = false;    ///< payloads are known to be right, and mbufs are the payloads'
    Site site{};             ///< of the chunk before
  };
  [[nodiscard]] Arriving look_up(LinkIndex from, const wire::DataHeader& header, bool ecn_ce,
                                 bool checked) noexcept;
  /// @return whether the mbuf was taken.
  [[gnu::always_inline]] inline bool receive(IncomingPacket& packet, Arriving& arriving,
                                             TimeNs now) noexcept;
  /// Of another fate than kGoesIn.
  [[gnu::noinline]] bool receive_other(const IncomingPacket& packet, Arriving& arriving,
                                       TimeNs now) noexcept;
  [[nodiscard, gnu::always_inline]] inline bool payload_is_right(
      const IncomingPacket& packet, bool checked, const std::byte* read_next) const noexcept;
  [[nodiscard, gnu::always_inline]] inline Arrival arrival_of(const Op& op, const LinkSender& to,
                                                              const wire::DataHeader& header,
                                                              Site& site) const noexcept;
  bool hold_early(const IncomingPacket& packet, Arriving& arriving, TimeNs now) noexcept;
  /// Packets of a run that were kept.
  void count_received(Arriving& arriving, const IncomingPacket& packet) noexcept {
    counters_.ecn_ce_received += packet.ecn_ce ? arriving.kept : 0;
    counters_.data_packets_received += arriving.kept;
    counters_.data_bytes_received += arriving.kept * packet.bytes;
    arriving.from.take_chunks(arriving.kept);
    arriving.kept = 0;
  }
  void apply_early(std::uint64_t op_seq, TimeNs now) noexcept;
  /// Takes what came early and could not be taken when its op was posted.
  void retry_early(TimeNs now) noexcept;
  /// The rank before called something else.
  void report_mismatch(const Link& from, std::uint64_t op_seq, const OpCall& ours,
                       const OpCall& theirs, TimeNs now) noexcept;
  void take_checked(TimeNs now) noexcept;

  // ring_fold.cc
  /// Claims the chunk and queues its work. Owns the mbuf unless it returns false (no buffer).
  bool apply(Op& op, EarlyPacket& packet, Arrival arrival, const Site& site, TimeNs now) noexcept;
  [[gnu::always_inline]] inline bool apply_inline(Op& op, const Ends& ends, EarlyPacket& packet,
                                                  Arrival arrival, const Site& site,
                                                  TimeNs now) noexcept;
  /// Copies the payload to an mbuf of its own. @return whether there was one.
  bool make_exclusive(EarlyPacket& packet, std::uint32_t bytes) noexcept;
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
  [[nodiscard]] bool may_go_on_early() const noexcept { return words_.none_waits_for_all(); }
  /// Fills in what the entries of all chunks of the op have alike.
  void prepare_entry(Op& op) const noexcept;
  /// The entry of a chunk.
  [[gnu::always_inline]] inline reduce::Entry& entry_of(Op& op, reduce::Kind kind,
                                                        std::byte* payload, const ChunkSpan& span,
                                                        bool finalize) noexcept;
  /// Makes the chunk's work an entry of the backend, which has a place in the fold queue until
  /// complete(). There is one.
  void queue_fold(const FoldWork& work, reduce::Kind kind, Op& op, const ChunkSpan& span,
                  bool finalize, TimeNs now) noexcept;
  void fold(TimeNs now) noexcept { collective::fold(folds_, services_, now); }
  /// The backend is through with a chunk of the queue: it is sent on, spilled or finished. The op
  /// may be gone afterwards.
  void complete(const Folded& done, TimeNs now) noexcept;
  /// The chunk's work, by a backend that does it at once: what complete() does of a chunk follows.
  /// @param mbuf  the chunk's, or nullptr.
  /// @return whether the backend was able to; if not, the group has ended.
  [[nodiscard, gnu::always_inline]] inline bool run_at_once(Op& op, reduce::Kind kind,
                                                            rte_mbuf* mbuf, std::byte* payload,
                                                            const ChunkSpan& span, bool finalize,
                                                            TimeNs now) noexcept;
  // For a chunk whose work is done.
  [[gnu::always_inline]] inline void note_arrived(Op& op, const Ends& ends,
                                                  bool holds_credit) noexcept;
  [[gnu::always_inline]] inline void end_here(Op& op, std::uint32_t chunk, rte_mbuf* mbuf,
                                              bool spill) noexcept;
  /// What goes with a payload that the CPU can read; 0 if no payload has one.
  [[nodiscard, gnu::always_inline]] inline std::uint32_t crc_of(
      std::span<const std::byte> payload, const std::byte* read_next) const noexcept;
  /// The backend failed at a chunk of the op. @param mbuf  the chunk's, or nullptr.
  [[gnu::noinline]] void give_up(std::uint64_t op_seq, rte_mbuf* mbuf, TimeNs now) noexcept;
  /// Where an op that is no all-reduce has its chunk in the members' memory.
  void point_to(const OpSpec& spec, const ChunkSpan& span, reduce::Entry& entry) const noexcept;
  /// The buffer of a chunk that another rank sent is free, or holds what goes on.
  void finish_arrival(LinkReceiver& from) noexcept {
    from.finish_chunk();
    if (!folds_.runs_at_once()) from.tell_credit();
  }
  [[nodiscard]] const std::byte* loaded_next(const Op& op, const ChunkId& id) const noexcept;
  void complete_check(const Folded& done, TimeNs now) noexcept;

  // ring_send.cc
  /// Whether every rank that data goes to has said where to.
  [[nodiscard]] bool may_send_data() const noexcept;
  bool send_data(TimeNs now, Outbox& out) noexcept;
  bool start_spilled(TimeNs now, Outbox& out) noexcept;
  bool start_own(TimeNs now, Outbox& out) noexcept;
  /// Takes an mbuf for chunk `chunk` and queues the entry that fills it.
  [[gnu::always_inline]] inline bool start_outgoing(Op& op, LinkSender& to, std::uint64_t chunk,
                                                    std::uint16_t hop, reduce::Kind kind,
                                                    TimeNs now) noexcept;
  /// Whether the oldest spilled chunk has a grant. One that has none waits for another rank's
  /// client, and must hold back nothing that this client may wait for.
  [[nodiscard]] bool spilled_may_go() const noexcept;
  /// What starts here is copied to where it ends here, too. There is a place in the fold queue.
  void copy_own(Op& op, std::uint64_t chunk, TimeNs now) noexcept;
  /// Whether something is there to be sent, and nothing but pacing or this rank's own buffers
  /// keep it: neither another rank nor a client has to do anything first.
  [[nodiscard]] bool something_may_go(const LinkSender& to) const noexcept;

  const ShardConfig& config_;
  const Group& group_;
  Neighbors& neighbors_;
  const PacketBuffers& buffers_;
  OpTable& ops_;
  FoldQueue& folds_;
  OpEnds& op_ends_;
  StallWatch& stall_;
  ShardServices& services_;
  ShardCounters& counters_;
  RingWords words_;
  EarlyPackets early_;
  FixedQueue<EarlyPacket> held_;  ///< claimed chunks that wait in their packets to go on
  LinkIndex held_to_ = 0;         ///< the link by which they will go
  PayloadChecks checks_;
};

}  // namespace gradwire::collective
