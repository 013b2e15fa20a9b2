// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The clients of one group in one epoch: each posts its ops one after the other, some ahead, takes
/// what comes of them, and leaves. It holds every result against the reference, keeps the memory of
/// ended ops under watch, and remembers who learned of what when. The first thing that is not as it
/// has to be is kept as text. One thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/reference/reference.h"
#include "sim/seeds/scenario.h"
#include "sim/seeds/transfer_job.h"
#include "sim/world/world.h"

namespace gradwire::sim {

class Job {
 public:
  /// `ops` and `ops_ahead` as in a scenario; they are copied.
  /// @param group  its hosts and processes
  Job(World& world, const GroupOptions& group, std::vector<PlannedOp> ops,
      std::vector<std::uint32_t> ops_ahead);

  /// Its clients have transfers, too; before attach().
  void add_transfers(std::unique_ptr<TransferJob> transfers) { transfers_ = std::move(transfers); }
  [[nodiscard]] TransferJob* transfers() const { return transfers_.get(); }
  /// What some of its ranks call otherwise: it outlives this.
  void call_oddly(const OddCalls& odd) {
    odd_ = odd.any() ? &odd : nullptr;
    if (transfers_ != nullptr) transfers_->call_oddly(odd);
  }
  /// The group whose clients these are; before the first event of it.
  void attach(GroupId group) {
    group_ = group;
    if (transfers_ != nullptr) transfers_->attach(group);
  }
  [[nodiscard]] GroupId group() const { return group_; }

  // What the world says of this group.
  void on_formed(std::uint16_t rank);
  void on_done(std::uint16_t rank, std::uint64_t op_seq);
  void on_transfer_done(std::uint16_t rank, std::uint64_t id);
  void on_failed(std::uint16_t rank, const AbortReason& reason);
  void on_quiet(std::uint16_t rank);
  /// The rank's host has died, and its clients with it.
  void on_crash(std::uint16_t rank);
  /// The rank's clients stop posting: what they said last is an abort, or nothing.
  void on_client_gone(std::uint16_t rank) {
    clients_[rank].gone = true;
    if (transfers(rank)) transfers_->stop_posting(rank);
  }

  /// Called when the first rank is through with an op in the middle, and the others are not.
  std::function<void(std::uint16_t rank, std::uint64_t op_seq)> when_first_done;

  /// Every living rank's client has an end of each op.
  [[nodiscard]] bool finished() const;
  /// All ranks closed or dead.
  [[nodiscard]] bool closed() const;
  void leave_all();
  /// Memory of ended ops, looked at once nothing runs any more.
  void check_memory();

  struct Client {
    bool formed = false;
    bool crashed = false;
    bool gone = false;  ///< posts nothing more
    bool failed = false;
    bool quiet = false;  ///< has an error for everything unfinished
    bool left = false;
    bool post_scheduled = false;
    std::uint64_t posted = 0;            ///< ops
    std::uint64_t done = 0;              ///< ops, in any order
    std::uint64_t first_unfinished = 1;  ///< op_seq; one more than there are once all are done
    std::vector<bool> done_ops;          ///< [op_seq]
    AbortReason reason;
    TimeNs failed_at = 0;
  };
  [[nodiscard]] const std::vector<Client>& clients() const { return clients_; }
  [[nodiscard]] std::size_t ops() const { return ops_.size(); }
  /// Ops that some ranks completed and others have an error for.
  [[nodiscard]] std::uint64_t one_sided() const;
  [[nodiscard]] std::uint64_t completed() const;
  [[nodiscard]] const std::string& failure() const { return failure_; }
  void fail(std::string text);

 private:
  [[nodiscard]] bool transfers(std::uint16_t rank) const {
    return transfers_ != nullptr && rank < nranks_;
  }
  void post_next(std::uint16_t rank);
  void end_if_finished(std::uint16_t rank);
  /// Whether the rank can be through with an op that others call otherwise.
  [[nodiscard]] bool may_end(std::uint16_t rank, std::uint64_t op_seq) const;
  [[nodiscard]] bool has_ended(const Client& client) const {
    const auto rank = static_cast<std::uint16_t>(&client - clients_.data());
    return client.crashed || client.quiet ||
           (client.formed && client.done == ops_.size() &&
            (!transfers(rank) || transfers_->ended(rank)));
  }

  World& world_;
  GroupId group_ = 0;
  std::vector<PlannedOp> ops_;
  std::deque<OpCase> cases_;
  const OddCalls* odd_ = nullptr;
  std::uint16_t nranks_;                  ///< with members; clients of others post nothing
  std::vector<std::uint32_t> ops_ahead_;  ///< [nranks]
  std::uint64_t middle_ = 0;              ///< the op whose first end when_first_done is told of
  std::vector<Client> clients_;
  /// The fewest ops that a rank had posted when it failed or died: no later one can be completed.
  std::uint64_t last_possible_ = UINT64_MAX;
  std::unique_ptr<TransferJob> transfers_;  ///< may be nullptr
  std::string failure_;
};

}  // namespace gradwire::sim
