// SPDX-License-Identifier: BSD-3-Clause
#include "control/groups/group_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace gradwire::control {

std::string key_text(const GroupKey& key) {
  return fmt::format("group {:016x} epoch {}", key.group_id, key.epoch);
}

const char* name_of(GroupState state) noexcept {
  switch (state) {
    case GroupState::kGathering:
      return "gathering";
    case GroupState::kResolving:
      return "resolving";
    case GroupState::kForming:
      return "forming";
    case GroupState::kFormed:
      return "formed";
    case GroupState::kClosing:
      return "closing";
    case GroupState::kClosed:
      return "closed";
  }
  return "group state?";
}

std::uint32_t GroupTable::count(bool transfers_alone) const noexcept {
  if (transfers_alone) return transfers_alone_;
  return static_cast<std::uint32_t>(groups_.size()) - transfers_alone_;
}

std::uint32_t GroupTable::of_user(uid_t uid, bool transfers_alone) const noexcept {
  const auto found = of_user_.find({uid, transfers_alone});
  return found == of_user_.end() ? 0 : found->second;
}

Group* GroupTable::by_handle(std::uint64_t handle) const noexcept {
  const auto found = groups_.find(handle);
  return found == groups_.end() ? nullptr : found->second.get();
}

Group* GroupTable::by_key(const GroupKey& key) const noexcept {
  const auto found = handles_.find({key.group_id, key.epoch});
  return found == handles_.end() ? nullptr : by_handle(found->second);
}

std::vector<std::uint64_t> GroupTable::handles() const {
  std::vector<std::uint64_t> handles;
  handles.reserve(groups_.size());
  for (const auto& [handle, group] : groups_) handles.push_back(handle);
  return handles;
}

const std::set<std::uint64_t>& GroupTable::forming() {
  std::erase_if(forming_, [this](std::uint64_t handle) {
    const Group* group = by_handle(handle);
    return group == nullptr || group->state > GroupState::kForming;
  });
  return forming_;
}

std::vector<std::uint64_t> GroupTable::handles_after(std::uint64_t last, std::size_t most) const {
  std::vector<std::uint64_t> handles;
  const std::size_t count = std::min(most, groups_.size());
  handles.reserve(count);
  for (auto next = groups_.upper_bound(last); handles.size() < count; ++next) {
    if (next == groups_.end()) next = groups_.begin();
    handles.push_back(next->first);
  }
  return handles;
}

Group& GroupTable::add(std::unique_ptr<Group> group) {
  group->handle = next_handle_++;
  handles_[{group->key.group_id, group->key.epoch}] = group->handle;
  ++of_user_[{group->uid, group->wanted.transfers_alone}];
  if (group->wanted.transfers_alone) ++transfers_alone_;
  forming_.insert(group->handle);
  Group& made = *groups_.emplace(group->handle, std::move(group)).first->second;
  names_[made.handle] = {made.key, made.uid, made.rank, made.all_ranks()};
  return made;
}

void GroupTable::remove(std::uint64_t handle) {
  const auto found = groups_.find(handle);
  const Group& group = *found->second;
  const auto of_user = of_user_.find({group.uid, group.wanted.transfers_alone});
  if (--of_user->second == 0) of_user_.erase(of_user);
  if (group.wanted.transfers_alone) --transfers_alone_;
  handles_.erase({group.key.group_id, group.key.epoch});
  groups_.erase(found);
  ended_.push_back(handle);
  if (ended_.size() <= kEndedKept) return;
  names_.erase(ended_.front());
  ended_.pop_front();
}

}  // namespace gradwire::control
