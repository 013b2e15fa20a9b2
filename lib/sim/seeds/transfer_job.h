// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The clients' transfers between processes of one group in one epoch: each rank posts its ends in
/// an order and to a depth of its own, beside its ops. It holds what came against what was sent,
/// uses the memory of ended ends for something else, and sees to it that what both ends have posted
/// moves and ends. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/random.h"
#include "sim/seeds/scenario.h"
#include "sim/world/world.h"

namespace gradwire::sim {

class TransferJob {
 public:
  /// @param ranks  [processes]: the rank of each. Copies what it is given.
  TransferJob(World& world, std::vector<std::uint16_t> ranks, const TransferPlans& plans);

  /// What one end is posted with, if it is one of a transfer: it outlives this.
  void call_oddly(const OddCalls& odd) { odd_ = odd.end.has_value() ? &odd : nullptr; }
  void attach(GroupId group) { group_ = group; }
  void on_formed(std::uint16_t rank);
  /// Of a receive with more room than is sent: how much comes.
  void on_sized(std::uint64_t id, std::uint64_t bytes);
  void on_done(std::uint16_t rank, std::uint64_t id);
  /// The rank's ends that are under way end with an error, and nothing more is posted.
  void on_lost(std::uint16_t rank);
  void stop_posting(std::uint16_t rank) { clients_[rank].stopped = true; }
  /// Whether the rank's client has an end of each of its transfers.
  [[nodiscard]] bool ended(std::uint16_t rank) const {
    return clients_[rank].lost || clients_[rank].done == clients_[rank].order.size();
  }
  /// Every Progress::look_ns(). @param due  everybody is at work, and packets get through.
  /// @return empty, or what does not move or does not end.
  [[nodiscard]] std::string look(bool due);
  void check_memory();

  [[nodiscard]] std::uint64_t completed() const { return completed_; }
  [[nodiscard]] const std::string& failure() const { return failure_; }

 private:
  enum class State : std::uint8_t { kWaiting, kPosted, kDone };
  struct End {
    State state = State::kWaiting;
    bool retired = false;
    std::vector<std::byte> memory;  ///< with guards
  };
  struct Transfer {
    PlannedTransfer plan;
    End source;
    End destination;
    std::size_t before = SIZE_MAX;  ///< of the same pair
    TimeNs both_since = 0;
    std::uint64_t told = UINT64_MAX;  ///< how many bytes come, by the destination's first lane
  };
  struct Client {
    std::vector<std::uint64_t> order;  ///< ids of its ends
    std::vector<bool> posted;          ///< [order]
    std::uint32_t ahead = 1;
    std::size_t under_way = 0;
    std::size_t done = 0;
    bool formed = false;
    bool stopped = false;
    bool lost = false;
    bool scheduled = false;
  };
  [[nodiscard]] static std::uint64_t id_of(std::size_t index, bool sends) {
    return index * 2 + (sends ? 0 : 1);
  }
  [[nodiscard]] End& end_of(std::uint64_t id) {
    Transfer& transfer = transfers_[id / 2];
    return id % 2 == 0 ? transfer.source : transfer.destination;
  }
  /// Whether the same end of the pair's transfer before is done.
  [[nodiscard]] bool may_post(std::uint64_t id);
  void post_more(std::uint16_t rank);
  void post_one(std::uint16_t rank);
  void retire(End& end);
  [[nodiscard]] std::string wrong(const Transfer& transfer) const;
  void fail(std::string text);

  World& world_;
  GroupId group_ = 0;
  std::vector<std::uint16_t> ranks_;
  std::vector<Transfer> transfers_;
  std::vector<Client> clients_;
  Random random_;
  double late_ = 0;
  TimeNs late_ns_ = 0;
  const OddCalls* odd_ = nullptr;
  std::uint64_t completed_ = 0;
  std::uint64_t moved_ = 0;
  TimeNs moved_at_ = 0;
  std::string failure_;
};

}  // namespace gradwire::sim
