// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One ring of production shards in the simulator's world, for tests that drive it by hand: form,
/// post, run, look. The same seed gives the same run.
#pragma once

#include <cstdint>

#include "collective/shard.h"
#include "sim/reference/reference.h"
#include "sim/world/world.h"

namespace gradwire::test {

struct RingOptions {
  std::uint16_t nranks = 2;
  std::uint16_t folding_ranks = 0;  ///< without members, after those
  std::uint16_t members = 1;
  std::vector<std::uint16_t> ranks;   ///< [processes]: the rank of each; empty: members on each
  std::vector<std::uint16_t> owners;  ///< ranks that sum ops in two steps; empty: all
  std::vector<std::uint32_t> rates;   ///< [all ranks] of their ports, for tiles; empty: not known
  std::uint8_t lanes = 1;
  std::uint8_t rails = 1;         ///< ports of each host, each on a switch of its own
  std::uint8_t spines = 1;        ///< paths of equal cost, chosen by the source port
  std::uint8_t source_ports = 1;  ///< that a rank may send to another from
  std::uint32_t payload_bytes = 256;
  std::uint64_t seed = 1;
  double loss = 0;
  double duplication = 0;
  double corruption = 0;
  TimeNs delay_ns = 5'000;
  TimeNs jitter_ns = 0;                 ///< uniform; above the spacing of packets it reorders
  TimeNs driver_holds_ns = 0;           ///< how long the driver keeps a reference to a sent mbuf
  std::uint32_t tx_descriptors = 1024;  ///< sent frames that the driver may hold, on each host
  TimeNs step_ns = 2'000;               ///< between the polls of a busy shard
  double slow_backend = 0;              ///< chance per poll that a reduction finishes; 0 = at once
  std::uint32_t pool_mbufs = 2048;
  security::Mode mode = security::Mode::kOff;  ///< how packets are sealed
  collective::ShardConfig shard;  ///< window, transit, eager, timeouts are taken from here
};

class RingHarness final : private sim::Observer {
 public:
  explicit RingHarness(const RingOptions& options);

  /// Starts every shard and runs until all are formed. @return whether they were, within `limit`.
  bool form(TimeNs limit = 5'000'000'000);
  /// Runs until `condition` holds. @return whether it did within `limit` of virtual time.
  template <class Condition>
  bool run_until(Condition&& condition, TimeNs limit = 20'000'000'000) {
    return world_.run_until(condition, limit);
  }
  void run_for(TimeNs duration) { world_.run_for(duration); }

  /// Posts the op to every lane of the rank, as soon as the lane accepts it.
  void post(std::uint16_t rank, const collective::OpSpec& spec) { world_.post(group_, rank, spec); }
  /// Posts one end of a transfer. @return whether it was taken.
  bool post(std::uint16_t rank, const collective::TransferSpec& spec) {
    return world_.post(group_, rank, spec);
  }
  [[nodiscard]] std::size_t transfers_done() const { return transfers_done_; }  ///< ends, of all
  void leave(std::uint16_t rank) { world_.leave(group_, rank); }
  /// Its host, which may be changed at any time.
  [[nodiscard]] sim::HostProfile& host(std::uint16_t rank) { return world_.profile(rank); }
  /// The rank neither polls nor receives any more.
  void freeze(std::uint16_t rank, bool frozen = true);

  [[nodiscard]] collective::Shard& shard(std::uint16_t rank, std::uint8_t lane = 0) {
    return *world_.rank(group_, rank).shards[lane];
  }
  /// Whether every lane of the rank has finished the op.
  [[nodiscard]] bool done(std::uint16_t rank, std::uint64_t op_seq) const {
    return world_.done(group_, rank, op_seq);
  }
  [[nodiscard]] bool formed(std::uint16_t rank) const { return world_.formed(group_, rank); }
  [[nodiscard]] bool aborted(std::uint16_t rank) const { return world_.rank(group_, rank).failed; }
  [[nodiscard]] bool closed(std::uint16_t rank) const { return world_.closed(group_, rank); }
  /// That any rank has put on the wire.
  [[nodiscard]] std::uint64_t frames() { return world_.network().stats().frames; }
  [[nodiscard]] std::uint64_t counter(std::uint64_t collective::ShardCounters::*member) const {
    return world_.counter(member);
  }
  [[nodiscard]] std::uint64_t drops(wire::Drop drop) const { return world_.drops(drop); }
  [[nodiscard]] TimeNs now() const { return world_.now(); }
  /// How long the shard may sleep if no packet and no post comes; 0 or less: it wants a round now.
  [[nodiscard]] TimeNs until_deadline(std::uint16_t rank) const {
    return world_.until_deadline(group_, rank);
  }
  void abort(std::uint16_t rank, const AbortReason& reason) { world_.abort(group_, rank, reason); }
  /// While `down`, no packet gets from one rank's host to the other's.
  void set_down(std::uint16_t from, std::uint16_t to, bool down) {
    world_.network().set_down(from, to, down);
  }
  /// The same of one rail between two ranks.
  void cut_one_way(std::uint16_t from, std::uint16_t to, std::uint8_t rail, bool down) {
    world_.network().set_down(world_.port_of(from, rail), world_.port_of(to, rail), down);
  }
  /// The same of one path of equal cost between two ranks.
  void cut_spine(std::uint16_t from, std::uint16_t to, std::uint8_t spine, bool down) {
    world_.network().set_down(from, world_.port_of(to, 0, spine), down);
  }
  /// Longer frames are lost there.
  void shorten_spine(std::uint16_t from, std::uint16_t to, std::uint8_t spine, std::size_t bytes) {
    world_.network().set_most_bytes(from, world_.port_of(to, 0, spine), bytes);
  }
  [[nodiscard]] std::uint8_t spine_of(std::uint16_t from, std::uint16_t to,
                                      std::uint16_t source_port) const {
    return world_.spine_of(from, to, source_port);
  }
  /// Both ways.
  void cut_rail(std::uint16_t a, std::uint16_t b, std::uint8_t rail, bool down) {
    cut_one_way(a, b, rail, down);
    cut_one_way(b, a, rail, down);
  }
  /// So much later do packets arrive by one rail between two ranks, each way.
  void delay_rail(std::uint16_t a, std::uint16_t b, std::uint8_t rail, TimeNs delay_ns) {
    world_.network().set_delay(world_.port_of(a, rail), world_.port_of(b, rail), delay_ns);
    world_.network().set_delay(world_.port_of(b, rail), world_.port_of(a, rail), delay_ns);
  }
  /// From now on what `loses` says yes to is lost on its way; hosts are numbered as ranks.
  void lose(sim::World::Loses loses) { world_.lose(std::move(loses)); }
  /// Destroys the shards and everything on the way. @return mbufs that did not come back.
  std::uint32_t leaked_mbufs() { return world_.leaked_mbufs(); }

 private:
  void on_transfer_done(sim::GroupId, std::uint16_t, std::uint64_t) override { ++transfers_done_; }

  std::uint16_t all_ranks_;
  sim::Trace trace_;
  sim::World world_;
  sim::GroupId group_ = 0;
  std::size_t transfers_done_ = 0;
};

/// As the simulator's, by its parts.
class AllReduceCase : public sim::AllReduceCase {
 public:
  AllReduceCase(std::uint16_t nranks, std::uint16_t members, std::uint64_t count, DataType type,
                RedOp op, std::uint64_t seed, bool in_place)
      : sim::AllReduceCase(
            nranks, members,
            {.count = count, .datatype = type, .redop = op, .in_place = in_place, .seed = seed}) {}
};

}  // namespace gradwire::test
