// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/key_memory.h"

#include <fmt/format.h>

#include <utility>

namespace gradwire::control {
namespace {

std::string mib_text(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

KeyRoom::~KeyRoom() { memory_->give_back(uid_, bytes_, waits_); }

void KeyRoom::free(std::function<bool()> piece) const {
  if (!std::exchange(waits_, true)) memory_->begin_to_wait(uid_, bytes_);
  memory_->free(uid_, std::move(piece));
}

Result<KeyRoomPtr> KeyMemory::take(uid_t uid, std::uint64_t bytes) {
  const auto check = [&](const std::string& who, const Use& use,
                         std::uint64_t bound) -> Result<void> {
    if (use.live + bytes > bound) {
      return fail(ErrorCode::kResourceExhausted,
                  fmt::format("the keys of this group take {}, and those of {} take {} of {} "
                              "already: leave a group, or raise limits.key_memory_mib in the "
                              "daemon's configuration",
                              mib_text(bytes), who, mib_text(use.live), mib_text(bound)));
    }
    if (use.both() + bytes <= 2 * bound) return {};
    return fail(ErrorCode::kBusy,
                fmt::format("the keys of this group take {}, and {} of groups that {} left are "
                            "not cleared yet: try again, or raise limits.key_memory_mib in the "
                            "daemon's configuration",
                            mib_text(bytes), mib_text(use.waits), who));
  };
  if (auto room = check("all users", all_, bounds_.all); !room) {
    return tl::unexpected(room.error());
  }
  if (auto room = check(fmt::format("user {}", uid), of_user(uid), bounds_.user); !room) {
    return tl::unexpected(room.error());
  }
  auto room = std::make_shared<const KeyRoom>(shared_from_this(), uid, bytes);
  users_[uid].live += bytes;
  all_.live += bytes;
  return room;
}

void KeyMemory::begin_to_wait(uid_t uid, std::uint64_t bytes) noexcept {
  for (Use* use : {&all_, &users_.find(uid)->second}) {
    use->live -= bytes;
    use->waits += bytes;
  }
}

void KeyMemory::give_back(uid_t uid, std::uint64_t bytes, bool waits) noexcept {
  const auto user = users_.find(uid);
  for (Use* use : {&all_, &user->second}) (waits ? use->waits : use->live) -= bytes;
  if (user->second.both() == 0) users_.erase(user);
}

void KeyMemory::free(uid_t uid, std::function<bool()> piece) {
  if (worker_ != nullptr) return worker_->submit_in_turn(uid, std::move(piece), [] {});
  while (!piece()) {
  }
}

}  // namespace gradwire::control
