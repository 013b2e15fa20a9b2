// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One group's share on one lane: it puts together the parts that the rank has, each a class of its
/// own, and hands each packet, fold and round to those that it concerns: links to other ranks
/// (Neighbors, Greetings), what goes round the ring (Ring), what goes between any two ranks
/// (OffRing), how the group begins and ends (Membership). It takes decoded packets and time, and
/// gives frames ready to transmit and events. It knows no port, clock, socket or thread, so the
/// simulator runs the very same object.
///
/// A rank without members has no Ring. It sums for others, and posts what they tell of. Nor has a
/// group for transfers alone, which has no ops and sends nothing while nobody waits for anything.
///
/// create() runs on the control thread and is the only place that allocates (mempools apart); from
/// then on one lane owns the object; every other call is noexcept and bounded.
///
///   shard.cc          creation, posting, lifecycle, rounds
///   shard_receive.cc  which part a received packet concerns
///   shard_watch.cc    status, the next deadline, and a group in which nothing moves
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "base/abort_reason.h"
#include "base/result.h"
#include "collective/event_queue.h"
#include "collective/links/data_run.h"
#include "collective/links/packet_buffers.h"
#include "collective/links/packet_source.h"
#include "collective/links/peer_ends.h"
#include "collective/membership/abort_answers.h"
#include "collective/membership/group.h"
#include "collective/membership/membership.h"
#include "collective/membership/stall_watch.h"
#include "collective/neighbors/greetings.h"
#include "collective/neighbors/neighbors.h"
#include "collective/neighbors/rails.h"
#include "collective/off_ring/off_ring.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_ends.h"
#include "collective/ops/op_spec.h"
#include "collective/ops/op_table.h"
#include "collective/ring/ring.h"
#include "collective/shard_config.h"
#include "collective/shard_services.h"
#include "collective/shard_status.h"
#include "reduce/backend.h"
#include "wire/packet.h"

namespace gradwire::collective {

class Shard final : private ShardServices {
 public:
  /// Checks the configuration's bounds. nranks 1 has no neighbors: templates and tokens are
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
  /// Opens a packet whose source_of() says that it is sealed, and takes its number: afterwards it
  /// is as one that was never sealed. It is written to where it lies; if others have the buffer
  /// too, in another one.
  /// @param[in,out] frame   of which the packet is the end.
  /// @param[in,out] packet  with its tag; then without it.
  /// @return Drop::kNone, or why it is to be dropped: then nothing took effect.
  [[nodiscard]] wire::Drop open(const wire::CommonHeader& header, rte_mbuf*& frame,
                                std::span<const std::byte>& packet) noexcept;
  /// A packet of this group that has no other effect.
  void count_drop(wire::Drop drop) noexcept { counters_.count_drop(drop); }
  /// Keys that are wanted by and by (doc/security.md, Generations). @return whether one is.
  [[nodiscard]] bool pop_key_wish(KeyWish& out) noexcept {
    return config_.seals != nullptr && config_.seals->pop_wish(out);
  }
  /// @return the key in whose place it comes, to be freed by whoever makes keys.
  [[nodiscard]] security::PacketKey supply_key(const KeyWish& wish,
                                               security::PacketKey key) noexcept {
    return config_.seals->supply(wish, std::move(key));
  }
  /// Takes a received frame and owns it from then on. `packet` is its decoded form, pointing into
  /// it; one that no neighbor sent is counted and dropped, and its body need not be decoded. Work
  /// on payloads waits for flush().
  void on_packet(rte_mbuf* frame, const wire::Packet& packet, const PacketSource& from, bool ecn_ce,
                 TimeNs now) noexcept;
  /// Takes data packets of a link, which are in one piece each.
  void on_data(const DataRun& run, TimeNs now) noexcept;
  /// Somebody at `source` speaks another version: if a neighbor has that address, the error of a
  /// group that does not form says so.
  void on_other_version(const wire::IpAddress& source, std::uint8_t version) noexcept {
    greetings_.on_other_version(source, version);
  }
  /// As Greetings.
  void on_other_group(const wire::IpAddress& source, const GroupKey& key) noexcept {
    greetings_.on_other_group(source, key);
  }
  void on_unfit_hello(const wire::IpAddress& source, std::uint16_t says_rank) noexcept {
    greetings_.on_unfit_hello(source, says_rank);
  }
  void on_unsealed_hello(const wire::IpAddress& source) noexcept {
    greetings_.on_unsealed_hello(source);
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
  void abort(const AbortReason& reason, TimeNs now) noexcept override;
  /// Nothing more will be posted: finish, say bye, close. Unfinished ops at that time abort.
  void leave(TimeNs now) noexcept;

  /// @return whether an event was taken.
  [[nodiscard]] bool pop_event(Event& out) noexcept {
    return off_ring_.pop_done(out) || events_.pop(out);
  }

  /// The lane polled until then, though it did not call this shard, for which there was nothing.
  void rested_until(TimeNs polled_at) noexcept { ends_.rested_until(polled_at); }

  [[nodiscard]] const AbortReason& reason() const noexcept { return membership_.reason(); }
  [[nodiscard]] const ShardConfig& config() const noexcept { return config_; }
  [[nodiscard]] const ShardCounters& counters() const noexcept { return counters_; }
  [[nodiscard]] const char* backend_name() const noexcept { return folds_.backend().name(); }
  /// Whether packets come though no op is unfinished that was posted here: of transfers, or of ops
  /// of which a rank without members hears by packets alone.
  [[nodiscard]] bool expects_packets() const noexcept {
    return config_.folds_only() || off_ring_.expects_packets();
  }
  /// Whether a backend has folds that it has not done: never one that runs at once.
  [[nodiscard]] bool folding() const noexcept { return folds_.size() != 0; }
  [[nodiscard]] ShardStatus status(TimeNs now) const noexcept;
  /// Whether chunks of ops up to that one went round the ring and are not acknowledged yet.
  [[nodiscard]] bool has_in_flight(std::uint64_t op_seq) const noexcept;

 private:
  Shard(const ShardConfig& config, std::unique_ptr<reduce::Backend> backend);

  [[nodiscard]] const Links& links() const noexcept { return neighbors_.links(); }
  [[nodiscard]] bool live() const noexcept { return group_.live(); }

  // shard.cc
  void take_folded(TimeNs now) noexcept override;
  PostResult post_told(const OpSpec& told, TimeNs now) noexcept override;
  /// @param called  its factors and its place in the order are right.
  [[nodiscard]] PostResult open(const OpSpec& called, TimeNs now) noexcept;
  void abort_if(const Membership::Cause& cause, TimeNs now) noexcept;
  void drop_everything() noexcept;
  /// Sends what may go round the ring, or at a rank without members what goes by its link.
  bool run_ring(TimeNs now, Outbox& out) noexcept;

  // shard_receive.cc
  /// Whether an abort's ranks are the group's.
  [[nodiscard]] bool names_ranks(const AbortReason& reason) const noexcept {
    return reason.culprit_rank < config_.all_ranks() && reason.reporter_rank < config_.all_ranks();
  }
  /// What is done with a packet of a link that is no data and whose token, address and state are
  /// right.
  [[nodiscard]] wire::Drop receive(const PacketSource& from, const wire::Packet& packet,
                                   bool ecn_ce, TimeNs now) noexcept;
  /// A hello, or the answer to one. @return why it was dropped.
  [[nodiscard, gnu::noinline]] wire::Drop receive_hello(const PacketSource& from,
                                                        const wire::Packet& packet,
                                                        TimeNs now) noexcept;
  void receive_ack(Link& link, const wire::AckHeader& ack, TimeNs now) noexcept;
  void receive_question(const wire::ProgressCheckBody& check, TimeNs now) noexcept;
  void receive_bye(LinkIndex index, const wire::ByeBody& bye, TimeNs now) noexcept;

  // shard_watch.cc
  /// Whether the next step of the oldest op is another rank's: to grant, to acknowledge.
  [[nodiscard]] bool waits_for_others() const noexcept;
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
  EventQueue events_;
  StallWatch stall_;
  Neighbors neighbors_;
  Greetings greetings_;
  Rails rails_;
  PeerEnds ends_;
  AbortAnswers abort_answers_;
  OpEnds op_ends_;
  OffRing off_ring_;
  Membership membership_;
  std::optional<Ring> ring_;  ///< none: !ShardConfig::has_ring()
  TimeNs last_poll_ = 0;
};

}  // namespace gradwire::collective
