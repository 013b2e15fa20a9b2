// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Commands of ops on a CUDA stream where gradient memory is the host's. The daemon knows nothing
/// of streams then: a command is held here until its input has been copied, and those of its group
/// behind it too. A recv waits for none of this process's sends. If an input does not come, the
/// group aborts. Nothing of this waits; whoever posts, tests or waits next moves it on.
///
/// The client's lock guards it; it allocates.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "base/result.h"
#include "client/connection.h"
#include "client/handles.h"
#include "client/works.h"

namespace gradwire::client {

class HeldCommands {
 public:
  /// All of them outlive it.
  HeldCommands(Connection& connection, Works& works, const Groups& groups)
      : connection_(connection), works_(works), groups_(groups) {}

  [[nodiscard]] bool any() const noexcept { return held_ != 0; }
  /// Whether the op's command may not go yet.
  [[nodiscard]] static bool must_wait(const gw_work& work);
  void hold(const std::shared_ptr<gw_work>& work, const ipc::CommandEntry& command,
            const ipc::CommandExtra& extra);
  /// Sends what may go by now.
  void advance();
  /// Ends those of a group.
  void fail(gw_group& group, ErrorCode code, const std::string& text);
  /// The connection is dead, and all ops end.
  void drop_all();

 private:
  void push(gw_group& group, std::deque<HeldCommand>& queue);

  Connection& connection_;
  Works& works_;
  const Groups& groups_;
  std::uint64_t held_ = 0;  ///< of all groups
};

}  // namespace gradwire::client
