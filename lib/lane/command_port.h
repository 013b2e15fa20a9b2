// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Takes the clients' commands on a lane: lane 0 of a daemon has ClientCommands, all other lanes
/// have NoCommands. The lane owns it. poll() and the functions for sleeping allocate nothing.
#pragma once

#include <cstdint>

#include "base/types.h"
#include "collective/shard.h"
#include "command/messages.h"

namespace gradwire::lane {

class CommandPort {
 public:
  virtual ~CommandPort() = default;

  /// A request of the control thread that is about clients or ops, or kLeaveGroup.
  /// @return whether the port gives the request back, later. Else the lane does.
  [[nodiscard]] virtual bool take(command::Request& request) noexcept = 0;
  /// The lane has this group from now on.
  virtual void add_group(const command::GroupPlan& plan,
                         const collective::ShardConfig& config) noexcept = 0;
  /// `since` is not set.
  [[nodiscard]] virtual command::MembersWait members_wait(
      std::uint64_t group_handle) const noexcept = 0;
  /// The next rank has posted the group's ops up to this one.
  virtual void heard_posted(std::uint64_t group_handle, std::uint64_t op_seq) noexcept = 0;
  /// Commands, ops and answers, once a round. @return whether there was anything to do.
  virtual bool poll(TimeNs now) noexcept = 0;
  /// Whether an op waits for an event, which cannot wake the lane.
  [[nodiscard]] virtual bool waits_for_input() const noexcept = 0;

  // For sleeping, as in CommandLane.
  virtual bool find_commands() noexcept = 0;
  virtual void set_sleeping(bool sleeping) noexcept = 0;
  [[nodiscard]] virtual bool has_command() const noexcept = 0;

  /// Steps of all polls so far, as command::CommandLane counts them.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 protected:
  std::uint64_t steps_ = 0;
};

class NoCommands final : public CommandPort {
 public:
  [[nodiscard]] bool take(command::Request&) noexcept override { return false; }
  void add_group(const command::GroupPlan&, const collective::ShardConfig&) noexcept override {}
  [[nodiscard]] command::MembersWait members_wait(std::uint64_t) const noexcept override {
    return {};
  }
  void heard_posted(std::uint64_t, std::uint64_t) noexcept override {}
  bool poll(TimeNs) noexcept override { return false; }
  [[nodiscard]] bool waits_for_input() const noexcept override { return false; }
  bool find_commands() noexcept override { return false; }
  void set_sleeping(bool) noexcept override {}
  [[nodiscard]] bool has_command() const noexcept override { return false; }
};

}  // namespace gradwire::lane
