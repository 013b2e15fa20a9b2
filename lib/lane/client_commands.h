// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The command lane as a part of lane 0: it takes requests and the lanes' reports, and passes the
/// results to the control thread and to the lane's own shards. Lane 0 owns it; requests that add
/// something allocate, nothing else does.
#pragma once

#include <functional>

#include "base/abort_reason.h"
#include "command/command_lane.h"
#include "command/links.h"
#include "lane/command_port.h"
#include "lane/notices.h"
#include "lane/sleeper.h"

namespace gradwire::lane {

class ClientCommands final : public CommandPort {
 public:
  using AbortGroup =
      std::function<void(std::uint64_t group_handle, const AbortReason& reason, TimeNs now)>;

  /// All arguments must outlive the object.
  /// @param lanes every lane's rings, to pass ops to the lanes
  /// @param reports  of all lanes
  /// @param sleeper  wakes the lane; clients' doorbells are added to it
  /// @param abort    aborts lane 0's shard of a group
  ClientCommands(std::span<const command::LaneRings> lanes, rte_ring* reports,
                 command::CommandCounters& counters, Notices& notices, Sleeper& sleeper,
                 AbortGroup abort)
      : commands_(lanes, counters),
        reports_(reports),
        notices_(notices),
        sleeper_(sleeper),
        abort_(std::move(abort)) {}

  [[nodiscard]] bool take(command::Request& request) noexcept override;
  void add_group(const command::GroupPlan& plan,
                 const collective::ShardConfig& config) noexcept override;
  [[nodiscard]] command::MembersWait members_wait(
      std::uint64_t group_handle) const noexcept override {
    return commands_.members_wait(group_handle);
  }
  void heard_posted(std::uint64_t group_handle, std::uint64_t op_seq) noexcept override {
    commands_.heard_posted(group_handle, op_seq);
  }
  bool poll(TimeNs now) noexcept override;
  [[nodiscard]] bool waits_for_input() const noexcept override {
    return commands_.waits_for_input();
  }
  bool find_commands() noexcept override { return commands_.find_commands(); }
  void set_sleeping(bool sleeping) noexcept override { commands_.set_sleeping(sleeping); }
  [[nodiscard]] bool has_command() const noexcept override { return commands_.has_command(); }

 private:
  /// What a round does at most: the next one goes on.
  static constexpr std::uint32_t kReportSteps = 128;
  static constexpr int kNewsPerRound = 16;
  static constexpr int kAnswersPerRound = 64;

  bool take_reports() noexcept;
  void tell_news(TimeNs now) noexcept;

  command::CommandLane commands_;
  std::uint64_t counted_steps_ = 0;  // of commands_, in steps_
  rte_ring* reports_;
  Notices& notices_;
  Sleeper& sleeper_;
  AbortGroup abort_;
};

}  // namespace gradwire::lane
