// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A ring of shards with several paths between ranks, of which a test cuts some for good, and what
/// it has to do meanwhile. One thread.
#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "support/ring_harness.h"

namespace gradwire::test::paths {

inline constexpr TimeNs kMs = 1'000'000;
inline constexpr TimeNs kSilence = 200 * kMs;

/// Of which each two ranks have two paths of equal cost, chosen by 32 source ports.
inline RingOptions options_of(std::uint16_t nranks) {
  RingOptions options;
  options.nranks = nranks;
  options.spines = 2;
  options.source_ports = 32;
  options.shard.timeouts.silence_ns = kSilence;
  options.shard.timeouts.ping_interval_ns = kSilence / 40;
  options.shard.sender.max_pto_ns = kSilence / 10;
  return options;
}

/// The path of equal cost that a rank's packets to another take first.
inline std::uint8_t first_spine(RingHarness& ring, std::uint16_t from, std::uint16_t to) {
  return ring.spine_of(from, to, ring.shard(0).config().downstream.frame.source_port());
}
inline void cut_first(RingHarness& ring, std::uint16_t from, std::uint16_t to) {
  ring.cut_spine(from, to, first_spine(ring, from, to), true);
}

/// All ranks' ops, one after the other.
struct Ops {
  RingHarness& ring;
  std::uint16_t nranks;
  std::uint64_t count = 100;
  std::uint64_t op_seq = 0;

  /// The next one, to which the client of a rank is late.
  /// @return for how long it took; kNever if it failed.
  TimeNs run(std::uint16_t late = 0, TimeNs late_ns = 0) {
    ++op_seq;
    const TimeNs before = ring.now();
    sim::OpCase op(nranks, 1, {.count = count, .seed = op_seq});
    for (std::uint16_t rank = 0; rank < nranks; ++rank) {
      if (rank != late) ring.post(rank, op.spec(rank, op_seq));
    }
    ring.run_for(late_ns);
    ring.post(late, op.spec(late, op_seq));
    for (std::uint16_t rank = 0; rank < nranks; ++rank) {
      const bool ended = ring.run_until(
          [&] { return ring.done(rank, op_seq) || ring.aborted(rank); }, 2 * kSilence);
      if (!ended || ring.aborted(rank) || !op.wrong(rank).empty()) return kNever;
    }
    return ring.now() - before;
  }
};

/// One from a process to another, of bytes that say where they belong.
class Transfer {
 public:
  Transfer(RingHarness& ring, wire::ProcessPair pair, std::size_t bytes)
      : ring_(ring), from_(bytes), to_(bytes) {
    for (std::size_t i = 0; i < bytes; ++i) from_[i] = static_cast<std::byte>(i * 7 + i / 256);
    spec_.pair = pair;
    spec_.terms = {bytes, 0, wire::TransferCall::kSendRecv};
  }
  /// @param members  on each rank.
  void send(std::uint16_t members = 1) { post(collective::TransferEnd::kSource, from_, members); }
  void receive(std::uint16_t members = 1) {
    post(collective::TransferEnd::kDestination, to_, members);
  }
  [[nodiscard]] bool is_whole() const { return from_ == to_; }

 private:
  void post(collective::TransferEnd end, std::vector<std::byte>& memory, std::uint16_t members) {
    const bool sends = end == collective::TransferEnd::kSource;
    const std::uint16_t process = sends ? spec_.pair.source : spec_.pair.destination;
    spec_.id = sends ? 1 : 2;
    spec_.end = end;
    spec_.from = spec_.to = memory.data();
    REQUIRE(ring_.post(static_cast<std::uint16_t>(process / members), spec_));
  }

  RingHarness& ring_;
  collective::TransferSpec spec_;
  std::vector<std::byte> from_;
  std::vector<std::byte> to_;
};

}  // namespace gradwire::test::paths
