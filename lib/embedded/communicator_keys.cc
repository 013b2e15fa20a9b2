// SPDX-License-Identifier: BSD-3-Clause
// Keys of an embedded rank's group: made when it forms, and renewed while it runs.
#include <unistd.h>

#include <algorithm>

#include "control/plans/plan_request.h"
#include "embedded/communicator.h"

namespace gradwire::embedded {

Result<void> Communicator::make_keys(control::PlanRequest& wanted,
                                     std::span<const ipc::RankInfo> table) {
  if (wanted.security.mode == security::Mode::kOff) return {};
  auto making = keys_->making_for(wanted, ::geteuid(), table, nullptr);
  if (!making) return tl::unexpected(making.error());
  while (!(*making)->work()) {
  }
  if (const auto error = (*making)->error()) return tl::unexpected(*error);
  group_keys_ = (*making)->take();
  control::put_keys(wanted, group_keys_);
  keys_->begun();
  return {};
}

void Communicator::supply_key(const command::Notice& notice) {
  if (group_keys_ == nullptr) return;
  auto supply = group_keys_->supply(notice.group_handle, notice.lane, notice.wish);
  if (!supply) return;
  auto request = std::make_unique<command::Request>(std::move(*supply));
  keys_unsent_.emplace_back(notice.lane, request.get());
  key_requests_.push_back(std::move(request));
}

void Communicator::send_keys() {
  while (!keys_unsent_.empty() &&
         datapath_->send(keys_unsent_.front().first, keys_unsent_.front().second)) {
    keys_unsent_.pop_front();
  }
}

bool Communicator::take_key_request(const command::Request* request) noexcept {
  const auto found = std::find_if(key_requests_.begin(), key_requests_.end(),
                                  [&](const auto& each) { return each.get() == request; });
  if (found == key_requests_.end()) return false;
  key_requests_.erase(found);
  return true;
}

}  // namespace gradwire::embedded
