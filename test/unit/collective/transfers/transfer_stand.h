// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Shards of a simulated world with transfers, of tests: no loss unless a case says so. One thread.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/world/world.h"

namespace gradwire::sim {

inline constexpr TimeNs kSecond = 1'000'000'000;

/// Groups of ranks with transfers, and what became of their ends.
class Stand final : public Observer {
 public:
  static constexpr std::uint16_t kStreams = 8;

  struct Options {
    std::uint16_t nranks = 2;
    std::uint16_t members = 1;
    std::uint8_t lanes = 1;
    std::uint32_t pairs_max = 64;
    bool alone = false;  ///< the group is for transfers alone
  };
  explicit Stand(std::uint16_t nranks, std::uint16_t members = 1, std::uint8_t lanes = 1,
                 std::uint32_t pairs_max = 64)
      : Stand(Options{nranks, members, lanes, pairs_max, false}) {}
  explicit Stand(const Options& wanted)
      : world_(options(wanted.nranks), trace_, *this), nranks_(wanted.nranks) {
    GroupOptions group;
    for (HostId host = 0; host < nranks_; ++host) group.hosts.push_back(host);
    group.members = wanted.members;
    group.lanes = wanted.lanes;
    group.shard.payload_bytes = 256;
    group.shard.transfers.pairs_max = wanted.pairs_max;
    group.shard.transfers.alone = wanted.alone;
    group.shard.transfers.streams = kStreams;
    group_ = world_.add_group(group);
    for (std::uint16_t rank = 0; rank < nranks_; ++rank) world_.start(group_, rank);
    REQUIRE(world_.run_until([this] { return formed_ == nranks_; }, kSecond));
  }
  ~Stand() override {
    world_.remove_group(group_);
    CHECK(world_.leaked_mbufs() == 0);
  }

  void on_formed(GroupId, std::uint16_t) override { ++formed_; }
  void on_transfer_done(GroupId, std::uint16_t, std::uint64_t id) override { done_.push_back(id); }
  void on_transfer_sized(GroupId, std::uint16_t, std::uint64_t id, std::uint64_t bytes) override {
    sized_[id] = bytes;
  }
  void on_failed(GroupId, std::uint16_t, const AbortReason& reason) override {
    failed_.push_back(reason);
  }

  void send(std::uint64_t id, std::uint16_t rank, wire::ProcessPair pair,
            std::vector<std::byte>& memory, std::uint32_t tag = 0,
            wire::TransferCall call = wire::TransferCall::kSendRecv) {
    post(id, rank, collective::TransferEnd::kSource, pair, memory, tag, call);
  }
  void recv(std::uint64_t id, std::uint16_t rank, wire::ProcessPair pair,
            std::vector<std::byte>& memory, std::uint32_t tag = 0,
            wire::TransferCall call = wire::TransferCall::kSendRecv) {
    post(id, rank, collective::TransferEnd::kDestination, pair, memory, tag, call);
  }
  /// A receive of whatever is sent that fits `memory`.
  void recv_up_to(std::uint64_t id, std::uint16_t rank, wire::ProcessPair pair,
                  std::vector<std::byte>& memory, std::uint32_t tag = 0) {
    post(id, rank, collective::TransferEnd::kDestination, pair, memory, tag,
         wire::TransferCall::kSendRecv, true);
  }
  /// How many bytes such a receive gets, if that is known.
  std::int64_t size_of(std::uint64_t id) const {
    const auto found = sized_.find(id);
    return found == sized_.end() ? -1 : static_cast<std::int64_t>(found->second);
  }
  bool has(std::uint64_t id) const { return std::count(done_.begin(), done_.end(), id) == 1; }
  bool run_until_done(std::size_t ends, TimeNs limit = kSecond) {
    return world_.run_until([&] { return done_.size() >= ends; }, limit);
  }

  World& world() { return world_; }
  GroupId group() const { return group_; }
  const std::vector<AbortReason>& failed() const { return failed_; }

 private:
  static WorldOptions options(std::uint16_t hosts) {
    WorldOptions options;
    options.hosts = hosts;
    return options;
  }
  void post(std::uint64_t id, std::uint16_t rank, collective::TransferEnd end,
            wire::ProcessPair pair, std::vector<std::byte>& memory, std::uint32_t tag,
            wire::TransferCall call, bool up_to = false) {
    collective::TransferSpec spec;
    spec.up_to = up_to;
    spec.id = id;
    spec.end = end;
    spec.pair = pair;
    spec.terms = {memory.size(), tag, call};
    spec.from = spec.to = memory.data();
    CHECK(world_.post(group_, rank, spec));
  }

  Trace trace_;
  World world_;
  std::uint16_t nranks_;
  GroupId group_ = 0;
  int formed_ = 0;
  std::vector<std::uint64_t> done_;
  std::map<std::uint64_t, std::uint64_t> sized_;
  std::vector<AbortReason> failed_;
};

inline std::vector<std::byte> bytes(std::size_t count, int seed) {
  std::vector<std::byte> result(count);
  for (std::size_t i = 0; i < count; ++i)
    result[i] = static_cast<std::byte>(i * 7 + i / 256 + static_cast<std::size_t>(seed));
  return result;
}

}  // namespace gradwire::sim
