// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A ring of production shards in one thread, in virtual time, over a network that loses,
/// duplicates, delays and corrupts by a seed. Frames are copied from the sender's mbuf into one of
/// the receiver's pool, as a copying driver does. The same seed gives the same run.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "reduce/backend.h"
#include "ring/shard.h"

namespace gradwire::test {

struct RingOptions {
  std::uint16_t nranks = 2;
  std::uint16_t members = 1;
  std::uint8_t lanes = 1;
  std::uint32_t payload_bytes = 256;
  std::uint64_t seed = 1;
  double loss = 0;
  double duplication = 0;
  double corruption = 0;
  TimeNs delay_ns = 5'000;
  TimeNs jitter_ns = 0;        ///< uniform; above the spacing of packets it reorders
  TimeNs driver_holds_ns = 0;  ///< sent mbufs keep a reference for so long
  TimeNs step_ns = 2'000;
  std::uint32_t pool_mbufs = 2048;
  ring::ShardConfig shard;  ///< window, transit, eager, timeouts are taken from here
};

class RingHarness {
 public:
  explicit RingHarness(const RingOptions& options);
  ~RingHarness();

  /// Starts every shard and runs until all are formed. @return whether they were, within `limit`.
  bool form(TimeNs limit = 5'000'000'000);
  /// Runs until `condition` holds. @return whether it did within `limit` of virtual time.
  template <class Condition>
  bool run_until(Condition&& condition, TimeNs limit = 20'000'000'000) {
    const TimeNs end = now_ + limit;
    while (!condition()) {
      if (now_ >= end) return false;
      step();
    }
    return true;
  }
  void run_for(TimeNs duration);
  void step();

  /// Posts to every lane of the rank; kFull is retried at every step until it is taken.
  void post(std::uint16_t rank, const ring::OpSpec& spec);
  void leave(std::uint16_t rank);
  /// Neither polls nor receives any more.
  void freeze(std::uint16_t rank, bool frozen = true) { ranks_[rank].frozen = frozen; }
  void set_loss(double loss) { options_.loss = loss; }

  [[nodiscard]] ring::Shard& shard(std::uint16_t rank, std::uint8_t lane = 0) {
    return *ranks_[rank].shards[lane];
  }
  /// Every lane of the rank is through with the op.
  [[nodiscard]] bool done(std::uint16_t rank, std::uint64_t op_seq) const;
  [[nodiscard]] bool formed(std::uint16_t rank) const { return ranks_[rank].formed == lanes(); }
  [[nodiscard]] bool aborted(std::uint16_t rank) const { return ranks_[rank].aborted > 0; }
  [[nodiscard]] bool closed(std::uint16_t rank) const { return ranks_[rank].closed == lanes(); }
  [[nodiscard]] std::uint64_t counter(std::uint64_t ring::ShardCounters::*member) const;
  [[nodiscard]] std::uint64_t drops(wire::Drop drop) const;
  [[nodiscard]] TimeNs now() const { return now_; }
  /// Destroys the shards and everything on the way. @return mbufs that did not come back.
  std::uint32_t leaked_mbufs();

 private:
  struct Rank {
    std::vector<std::unique_ptr<ring::Shard>> shards;
    rte_mempool* packets = nullptr;
    rte_mempool* control = nullptr;
    std::vector<ring::OpSpec> waiting;  ///< posts that were kFull, in order
    std::vector<std::uint64_t> waiting_lane_posted;
    std::map<std::uint64_t, int> lanes_done;
    int formed = 0;
    int aborted = 0;
    int closed = 0;
    bool frozen = false;
  };
  struct Flight {
    std::uint16_t to;
    std::vector<std::byte> bytes;
  };

  [[nodiscard]] int lanes() const { return options_.lanes; }
  void make_rank(std::uint16_t rank);
  void send(std::uint16_t to, rte_mbuf* mbuf);
  void deliver(const Flight& flight);
  void retry_posts(Rank& rank);
  bool chance(double p) { return p > 0 && uniform_(random_) < p; }

  RingOptions options_;
  TimeNs now_ = 1'000'000'000;
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_{0, 1};
  std::vector<Rank> ranks_;
  std::multimap<TimeNs, Flight> network_;
  std::multimap<TimeNs, rte_mbuf*> held_by_driver_;
};

/// Inputs of every rank and member, and the sum that they must give: made from a seed, summed in
/// ring order and member order by plain loops that share nothing with the production code.
class AllReduceCase {
 public:
  AllReduceCase(std::uint16_t nranks, std::uint16_t members, std::uint64_t count, DataType type,
                RedOp op, std::uint64_t seed, bool in_place);

  [[nodiscard]] ring::OpSpec spec(std::uint16_t rank, std::uint64_t op_seq);
  /// Empty if the outputs of the rank's members are right to the bit; else where they are not.
  [[nodiscard]] std::string wrong(std::uint16_t rank) const;

 private:
  void compute_expected();

  std::uint16_t members_;
  std::uint64_t count_;
  DataType type_;
  RedOp op_;
  bool in_place_;
  std::vector<std::vector<std::vector<std::byte>>> inputs_;   // [rank][member]
  std::vector<std::vector<std::vector<std::byte>>> outputs_;  // [rank][member], with guard bytes
  std::vector<std::byte> expected_;
};

}  // namespace gradwire::test
