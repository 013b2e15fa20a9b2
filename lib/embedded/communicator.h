// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One rank without a daemon: the program that reduces opens the ports itself, and its own thread
/// drives lane 0 (the EAL's worker lcores drive the others). It uses the same lanes, shards and
/// formation rules as the daemon, but lacks what needs a control plane: clients in other processes,
/// quotas, several groups, a status socket.
///
/// The program has started the EAL. One thread owns a Communicator and makes every call; calls that
/// wait drive the lane and have a time limit. Between calls lane 0 does nothing: if the program
/// makes no call for longer than the silence timeout, its neighbors take it for dead. Each call
/// sets floating-point control (MXCSR) to the default and restores it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/abort_reason.h"
#include "base/result.h"
#include "base/types.h"
#include "collective/shard.h"
#include "control/keys/daemon_keys.h"
#include "control/lanes/datapath_lanes.h"
#include "ipc/control_messages.h"
#include "lane/clock.h"
#include "lane/datapath.h"
#include "lane/lane_threads.h"
#include "lane/sleeper.h"

namespace gradwire::embedded {

struct Config {
  /// Its `max_groups` and `mbufs_per_shard` are set from what a communicator needs. `polling` is
  /// that of every lane. A caller that waits for an op spins for a moment, then sleeps, as the
  /// lanes do; it keeps its class and nice value, and its timer slack when the call returns.
  lane::DatapathConfig datapath;
  /// Window, which may be left to collective::settle_windows(), timeouts, pacing; identity and
  /// addresses are filled in.
  collective::ShardConfig shard;
  std::uint8_t dscp = 0;
  bool ecn = false;
  std::vector<control::StaticNeighbor> neighbors;
  /// How the rank's packets are sealed (doc/security.md), and by which key: its `mode`, `cluster`
  /// and `sealed_payload_bytes` are looked at; the last is 64 less than the payload if it is 0.
  /// Off, without a key, if it is left alone.
  control::KeyOptions keys;
};

/// An op as the caller posts it. `input` and `output` are [count] of `datatype`; they are the same
/// or do not overlap, and the caller does not touch them until the op is done.
struct AllReduce {
  const void* input = nullptr;
  void* output = nullptr;
  std::uint64_t count = 0;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  std::uint32_t tag = 0;
  double factor = 1;  ///< of a premul-sum: what this rank's input is multiplied by
};

class Communicator {
 public:
  /// Opens ports, creates mempools and starts all lanes but lane 0. Only those lanes need worker
  /// lcores.
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> create(const Config& config);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// This rank's entry of the table; pass it to every other rank.
  [[nodiscard]] const ipc::RankInfo& info() const noexcept { return info_; }

  /// Joins the ring; collective. Once per Communicator.
  /// @param table  [nranks], the same on every rank; entry `rank` is info().
  /// @return kTimedOut, or an error that names the rank and the field that is wrong.
  [[nodiscard]] Result<void> form(const GroupKey& key, std::uint16_t rank,
                                  std::span<const ipc::RankInfo> table, TimeNs timeout_ns);

  /// Posts the next op; at most kMaxPosted are unfinished at a time.
  /// @return its op_seq, 1, 2, 3, ...; kAborted with the reason, kInvalidArgument, kBusy when
  ///         kMaxPosted ops are unfinished.
  [[nodiscard]] Result<std::uint64_t> post(const AllReduce& op);
  /// Drives the lane until `op_seq` and all ops before it are done at this rank. Packets that a
  /// paced port holds back, and retransmissions, leave only when the lane is driven again: a
  /// program that computes for long between ops should call test() in between.
  /// @return kTimedOut (the op continues), or the reason of the abort.
  [[nodiscard]] Result<void> wait(std::uint64_t op_seq, TimeNs timeout_ns);
  /// One round of the lane, in any case. @return whether `op_seq` and all before it are done.
  [[nodiscard]] bool test(std::uint64_t op_seq) noexcept;
  /// post() and wait().
  [[nodiscard]] Result<void> all_reduce(const AllReduce& op, TimeNs timeout_ns);

  /// Says bye and waits until the neighbors have received it; afterwards only destroy the object.
  [[nodiscard]] Result<void> leave(TimeNs timeout_ns);

  [[nodiscard]] lane::Datapath& datapath() noexcept { return *datapath_; }
  /// Sum over lanes; valid after form().
  [[nodiscard]] collective::ShardCounters counters() const noexcept;
  [[nodiscard]] const char* backend_name() const noexcept;

  static constexpr std::uint64_t kMaxPosted = 64;

 private:
  explicit Communicator(const Config& config);
  [[nodiscard]] Result<void> open();
  [[nodiscard]] Result<void> check(const AllReduce& op) const;
  /// One round of lane 0 and what the lanes reported. @return whether there was anything.
  bool drive(TimeNs now) noexcept;
  /// Called after each round of a waiting call: spins or sleeps as the polling policy says.
  void idle(TimeNs now, bool worked, std::optional<lane::PreciseSleeps>& precise) noexcept;
  /// @return whether there was one.
  bool take_reports() noexcept;
  void take_notices() noexcept;
  /// Drives until `done()`, the group is aborted, or `deadline`.
  template <class Done>
  Result<void> drive_until(Done&& done, TimeNs deadline, const std::string& what);
  [[nodiscard]] Result<void> resolve(std::span<control::NeighborPath> paths, control::Asking asking,
                                     TimeNs deadline);
  [[nodiscard]] Result<void> send(command::RequestType type, TimeNs deadline);

  // communicator_keys.cc
  /// Makes the keys of a group whose mode is not off.
  [[nodiscard]] Result<void> make_keys(control::PlanRequest& wanted,
                                       std::span<const ipc::RankInfo> table);
  /// A lane wants the key of another generation.
  void supply_key(const command::Notice& notice);
  /// Those for which the lanes' rings have room.
  void send_keys();
  /// A lane is done with a request. @return whether it was one of those.
  bool take_key_request(const command::Request* request) noexcept;
  [[nodiscard]] Error aborted() const;

  Config config_;
  lane::TscClock clock_;
  std::unique_ptr<lane::Datapath> datapath_;
  std::unique_ptr<lane::LaneThreads> threads_;
  std::unique_ptr<control::DatapathLanes> control_;
  ipc::RankInfo info_;
  std::unique_ptr<control::DaemonKeys> keys_;
  std::shared_ptr<control::GroupKeys> group_keys_;  ///< none: packets are not sealed
  std::vector<std::unique_ptr<command::Request>> key_requests_;
  std::deque<std::pair<std::uint8_t, command::Request*>> keys_unsent_;  ///< with their lanes

  command::GroupPlan* plan_ = nullptr;
  std::vector<command::Request> requests_;  ///< [lanes of the group], those under way
  std::size_t requests_open_ = 0;
  bool joined_ = false;  ///< the lanes know the plan
  std::uint8_t lanes_formed_ = 0;
  std::array<collective::OpSpec, command::kOpSlots> specs_{};
  std::array<double, command::kOpSlots> factors_{};  ///< of premul-sums
  std::array<std::uint8_t, command::kOpSlots> lanes_done_{};
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;  ///< all up to it are done on every lane
  AbortReason reason_;
  TimeNs next_control_ns_ = 0;
};

}  // namespace gradwire::embedded
