// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/user_keys.h"

#include <algorithm>
#include <utility>

namespace gradwire::control {

Result<UserKeyPtr> UserKeys::current(uid_t uid) {
  User& user = users_[uid];
  if (user.asked != 0) by_asked_.erase(user.asked);
  user.asked = ++asked_;
  by_asked_[user.asked] = uid;
  const bool has_one =
      !user.keys.empty() &&
      begun_ - by_number_.at(user.keys.back().number).made_at < bounds_.renewed_after;
  if (!has_one) {
    auto drawn = security::X25519Key::draw_new();
    if (!drawn) return tl::unexpected(drawn.error());
    const std::uint64_t number = ++made_;
    user.keys.push_back({number, std::make_shared<const security::X25519Key>(std::move(*drawn))});
    by_number_[number] = {uid, begun_};
  }
  UserKeyPtr key = user.keys.back().key;
  if (users_.size() > bounds_.users) make_room();
  return key;
}

UserKeyPtr UserKeys::find(uid_t uid, const security::PublicKey& key) const {
  const auto user = users_.find(uid);
  if (user == users_.end()) return nullptr;
  const auto held = std::ranges::find_if(
      user->second.keys, [&](const Held& each) { return each.key->public_key() == key; });
  return held == user->second.keys.end() ? nullptr : held->key;
}

void UserKeys::begun() {
  ++begun_;
  while (!by_number_.empty() &&
         begun_ - by_number_.begin()->second.made_at >= bounds_.retired_after) {
    // A user's keys have the order of all: the oldest of all is the oldest of its user.
    retire_first(users_.at(by_number_.begin()->second.uid));
  }
}

void UserKeys::retire_first(User& user) {
  by_number_.erase(user.keys.front().number);
  on_retired_(user.keys.front().key->public_key());
  user.keys.erase(user.keys.begin());
}

void UserKeys::make_room() {
  // Who is here counts as having asked now, so that each is looked at once for as many newcomers as
  // there are users. If all are here, the first of them goes.
  for (std::size_t looked = 0; looked < users_.size(); ++looked) {
    const uid_t uid = by_asked_.begin()->second;
    if (!is_here_ || !is_here_(uid)) break;
    by_asked_.erase(by_asked_.begin());
    users_[uid].asked = ++asked_;
    by_asked_[asked_] = uid;
  }
  const auto first = by_asked_.begin();
  const auto user = users_.find(first->second);
  while (!user->second.keys.empty()) retire_first(user->second);
  users_.erase(user);
  by_asked_.erase(first);
}

}  // namespace gradwire::control
