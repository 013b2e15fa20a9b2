// SPDX-License-Identifier: BSD-3-Clause
#include "control/lanes/lane_requests.h"

#include <algorithm>
#include <utility>

namespace gradwire::control {

void LaneRequests::send(std::uint8_t lane, command::Request request) {
  auto owned = std::make_unique<command::Request>(std::move(request));
  command::Request* pointer = owned.get();
  outstanding_.emplace(pointer, Request{std::move(owned), lane});
  unsent_[lane].push_back(pointer);
  flush();
}

void LaneRequests::flush() {
  for (std::size_t lane = 0; lane < unsent_.size(); ++lane) {
    while (!unsent_[lane].empty() &&
           lanes_.send(static_cast<std::uint8_t>(lane), unsent_[lane].front())) {
      unsent_[lane].pop_front();
      ++sent_;
    }
  }
}

LaneRequests::Request LaneRequests::take_done(command::Request* request) {
  const auto found = outstanding_.find(request);
  if (found == outstanding_.end()) return {};
  Request done = std::move(found->second);
  outstanding_.erase(found);
  return done;
}

bool LaneRequests::waits() const noexcept {
  return std::ranges::any_of(unsent_, [](const auto& requests) { return !requests.empty(); });
}

}  // namespace gradwire::control
