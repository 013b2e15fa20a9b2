// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A ring of shards and the ops that it does, for tests. One thread.
#pragma once

#include <catch2/catch.hpp>
#include <vector>

#include "support/ring_harness.h"

namespace gradwire::test {

/// Lets each rank of a formed ring do the op, and checks every rank's bits.
inline void run_op(RingHarness& ring, sim::OpCase& op, std::uint16_t nranks,
                   std::uint64_t op_seq = 1) {
  for (std::uint16_t rank = 0; rank < nranks; ++rank) ring.post(rank, op.spec(rank, op_seq));
  for (std::uint16_t rank = 0; rank < nranks; ++rank) {
    REQUIRE(ring.run_until([&] { return ring.done(rank, op_seq) || ring.aborted(rank); }));
    REQUIRE_FALSE(ring.aborted(rank));
    REQUIRE(op.wrong(rank) == "");
  }
}

/// A ring that is formed, and the sums that it is to do: ops 1, 2, ... of every rank.
struct Sums {
  explicit Sums(const RingOptions& options) : options(options), ring(options) {
    REQUIRE(ring.form());
  }
  void add(std::uint64_t count, std::uint64_t seed = 1, DataType datatype = DataType::kFloat32,
           RedOp redop = RedOp::kSum, bool in_place = true) {
    cases.emplace_back(options.nranks, options.members, count, datatype, redop, seed, in_place);
  }
  void post() {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      for (std::uint16_t r = 0; r < options.nranks; ++r) ring.post(r, cases[i].spec(r, i + 1));
    }
  }
  /// Runs to the end, and checks the bits of every rank.
  void finish(TimeNs limit = 20'000'000'000) {
    for (std::uint16_t r = 0; r < options.nranks; ++r) {
      for (std::size_t i = 0; i < cases.size(); ++i) {
        INFO("rank " << r << " op " << i + 1);
        REQUIRE(ring.run_until([&] { return ring.done(r, i + 1) || ring.aborted(r); }, limit));
        REQUIRE_FALSE(ring.aborted(r));
      }
    }
    for (std::uint16_t r = 0; r < options.nranks; ++r) {
      for (auto& c : cases) REQUIRE(c.wrong(r) == "");
    }
  }
  void run(TimeNs limit = 20'000'000'000) {
    post();
    finish(limit);
  }

  RingOptions options;
  RingHarness ring;
  std::vector<AllReduceCase> cases;
};

}  // namespace gradwire::test
