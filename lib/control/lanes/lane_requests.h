// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Requests to lanes. Those of a lane go in the order in which they were sent, as soon as its ring
/// has room; each is kept until the lane has answered it. The control thread owns it; it allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "command/messages.h"
#include "control/lanes/lane_control.h"

namespace gradwire::control {

class LaneRequests {
 public:
  /// Only lane 0 reads the clients' queues and checks their memory.
  static constexpr std::uint8_t kCommandLane = 0;

  struct Request {
    std::unique_ptr<command::Request> request;
    std::uint8_t lane = 0;
  };

  /// The lanes outlive it.
  explicit LaneRequests(LaneControl& lanes) : lanes_(lanes), unsent_(lanes.lanes()) {}

  void send(std::uint8_t lane, command::Request request);
  /// Sends what found no room.
  void flush();
  /// Takes back what a lane is done with.
  /// @param request  as in its notice.
  /// @return no request if it was none of these.
  [[nodiscard]] Request take_done(command::Request* request);

  [[nodiscard]] std::size_t outstanding() const noexcept { return outstanding_.size(); }
  [[nodiscard]] std::size_t unsent(std::uint8_t lane) const noexcept {
    return unsent_[lane].size();
  }
  /// Whether some lane's ring has no room.
  [[nodiscard]] bool waits() const noexcept;
  /// How many went to lanes so far.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }

 private:
  LaneControl& lanes_;
  std::unordered_map<command::Request*, Request> outstanding_;
  std::vector<std::deque<command::Request*>> unsent_;  ///< by lane, in order
  std::uint64_t sent_ = 0;
};

}  // namespace gradwire::control
