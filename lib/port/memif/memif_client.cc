// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_client.h"

#include <fmt/format.h>

#include <utility>

#include "base/require.h"

namespace gradwire::port {

MemifClient::MemifClient(MemifEnd end, std::string device)
    : end_(std::move(end)), device_(std::move(device)) {}

bool MemifClient::may_start() {
  const bool listens = memif_server_listens(end_);
  if (!listens) state_ = State::kWaiting;
  return listens;
}

MemifClient::Step MemifClient::look(TimeNs now, bool link_up,
                                    std::span<const std::uint64_t> lane_rounds) {
  // On a quiet host a connection takes milliseconds. If a port is stopped while its driver is still
  // connecting on the interrupt thread, the driver may use freed memory: hence seconds.
  constexpr TimeNs kLinkLostNs = 300'000'000;
  constexpr TimeNs kConnectNs = 3'000'000'000;
  switch (state_) {
    case State::kWatched:
      if (link_up) {
        down_since_ = kNever;
        was_up_ = true;
        return std::exchange(refusals_, 0) != 0 ? Step::kConnected : Step::kNone;
      }
      if (down_since_ == kNever) down_since_ = now;
      if (now - down_since_ < kLinkLostNs || now - since_ < kConnectNs) return Step::kNone;
      rounds_at_release_.assign(lane_rounds.begin(), lane_rounds.end());
      state_ = State::kReleasing;
      return Step::kRelease;
    case State::kReleasing:
      require(lane_rounds.size() == rounds_at_release_.size(), "a daemon keeps its lanes");
      for (std::size_t lane = 0; lane < lane_rounds.size(); ++lane) {
        if (lane_rounds[lane] - rounds_at_release_[lane] < 2) return Step::kNone;
      }
      return Step::kStop;
    case State::kWaiting:
      return memif_server_listens(end_) ? Step::kStart : Step::kNone;
  }
  return Step::kNone;
}

std::string MemifClient::connected() const {
  return fmt::format("port {}: connected to the memif server at {}", device_, end_.socket);
}

std::string MemifClient::stopped(std::uint16_t queues) {
  require(state_ == State::kReleasing, "a port is stopped when lanes leave it alone");
  state_ = State::kWaiting;
  return was_up_ || !memif_server_listens(end_) ? went_down() : tell_refusal(queues);
}

std::string MemifClient::started(TimeNs now) {
  require(state_ == State::kWaiting, "a port is started again that was stopped");
  state_ = State::kWatched;
  since_ = now;
  down_since_ = kNever;
  was_up_ = false;
  return refusals_ == 0 ? connected() : std::string{};
}

std::string MemifClient::went_down() {
  refusals_ = 0;
  return fmt::format("port {}: the memif link went down: waiting for a server at {}", device_,
                     end_.socket);
}

/// The driver hangs up on a client that wants more queues than the server has, among others, and
/// the reason stays with it. A server that has just begun to listen may not have its port yet.
std::string MemifClient::tell_refusal(std::uint16_t queues) {
  constexpr std::uint32_t kTold = 2;
  if (++refusals_ != kTold) return {};
  return fmt::format(
      "port {}: the memif server at {} listens and does not take this end with its {} queue pairs. "
      "Has its daemon fewer lanes? Then set the same lanes.count for both, or give it the client's "
      "end. Or the id or the secret of the two devices differ, or another client has the link",
      device_, end_.socket, queues);
}

std::string MemifClient::why_down() const {
  if (refusals_ > 1) return "down: the memif server does not take this end";
  if (state_ != State::kWaiting) return "down";
  return fmt::format("down: no memif server listens at {}", end_.socket);
}

}  // namespace gradwire::port
