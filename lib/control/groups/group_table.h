// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The groups that this daemon has a part in, by handle and by key, and the names of those that
/// were, for the trace. The control thread owns it; it allocates.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "control/state.h"

namespace gradwire::control {

/// What the trace says of a group.
struct GroupName {
  GroupKey key;
  uid_t uid = 0;
  std::uint16_t rank = 0;
  std::uint16_t nranks = 0;
};

class GroupTable {
 public:
  using Groups = std::map<std::uint64_t, std::unique_ptr<Group>>;
  using Names = std::map<std::uint64_t, GroupName>;

  /// By handle.
  [[nodiscard]] const Groups& all() const noexcept { return groups_; }
  [[nodiscard]] std::size_t size() const noexcept { return groups_.size(); }
  /// Those for transfers alone, or the others.
  [[nodiscard]] std::uint32_t count(bool transfers_alone) const noexcept;
  [[nodiscard]] std::uint32_t of_user(uid_t uid, bool transfers_alone) const noexcept;
  /// nullptr if there is none.
  [[nodiscard]] Group* by_handle(std::uint64_t handle) const noexcept;
  [[nodiscard]] Group* by_key(const GroupKey& key) const noexcept;
  /// For steps that may end groups.
  [[nodiscard]] std::vector<std::uint64_t> handles() const;
  /// Those that form.
  [[nodiscard]] const std::set<std::uint64_t>& forming();
  /// Those after `last`, and round again, `most` of them.
  [[nodiscard]] std::vector<std::uint64_t> handles_after(std::uint64_t last,
                                                         std::size_t most) const;
  /// By handle; also of groups that have ended.
  [[nodiscard]] const Names& names() const noexcept { return names_; }

  /// Gives it its handle.
  Group& add(std::unique_ptr<Group> group);
  void remove(std::uint64_t handle);

 private:
  /// How many groups that have ended have names.
  static constexpr std::size_t kEndedKept = 256;

  Groups groups_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t> handles_;  ///< by id and epoch
  std::map<std::pair<uid_t, bool>, std::uint32_t> of_user_;  ///< and whether for transfers alone
  std::uint32_t transfers_alone_ = 0;
  std::set<std::uint64_t> forming_;  ///< and some that do no more
  std::uint64_t next_handle_ = 1;    ///< 64 bits never run out
  Names names_;
  std::deque<std::uint64_t> ended_;  ///< those with names that have ended, the oldest first
};

}  // namespace gradwire::control
