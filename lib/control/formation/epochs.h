// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Remembers the last epoch that this daemon began to form for each group id. If a group were
/// formed twice under one epoch, its packets would have the same tokens and numbers again, and a
/// late one of the first group would be taken for one of the second. So epochs of a group id only
/// rise. Control thread; allocates.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace gradwire::control {

class Epochs {
 public:
  /// How many group ids are remembered; the one that began longest ago is forgotten first.
  static constexpr std::size_t kKept = 65'536;

  /// Epochs are counted per user: each user chooses group ids freely, and tokens differ from user
  /// to user.
  /// @return nothing if none is known.
  [[nodiscard]] std::optional<std::uint32_t> last(uid_t uid, std::uint64_t group_id) const {
    const auto found = by_id_.find({uid, group_id});
    if (found == by_id_.end()) return std::nullopt;
    return found->second.epoch;
  }
  void begin(uid_t uid, std::uint64_t group_id, std::uint32_t epoch) {
    Entry& entry = by_id_[{uid, group_id}];
    if (entry.began != 0) by_age_.erase(entry.began);
    entry.epoch = epoch > entry.epoch ? epoch : entry.epoch;
    entry.began = ++began_;
    by_age_[entry.began] = {uid, group_id};
    if (by_id_.size() <= kKept) return;
    by_id_.erase(by_age_.begin()->second);
    by_age_.erase(by_age_.begin());
  }

 private:
  using Id = std::pair<uid_t, std::uint64_t>;
  struct Entry {
    std::uint32_t epoch = 0;
    std::uint64_t began = 0;  ///< a serial number; 0 = not yet begun
  };
  std::map<Id, Entry> by_id_;
  std::map<std::uint64_t, Id> by_age_;
  std::uint64_t began_ = 0;
};

}  // namespace gradwire::control
