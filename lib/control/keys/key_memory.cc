// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/key_memory.h"

#include <fmt/format.h>

namespace gradwire::control {
namespace {

std::string mib_text(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

}  // namespace

KeyRoom::~KeyRoom() { memory_->give_back(uid_, bytes_); }

void KeyRoom::free(std::function<bool()> piece) const { memory_->free(uid_, std::move(piece)); }

Result<KeyRoomPtr> KeyMemory::take(uid_t uid, std::uint64_t bytes) {
  const auto refuse = [&](const std::string& who, std::uint64_t taken, std::uint64_t bound) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("the keys of this group take {}, and those of {} take {} of {} "
                            "already: leave a group, or raise limits.key_memory_mib in the "
                            "daemon's configuration",
                            mib_text(bytes), who, mib_text(taken), mib_text(bound)));
  };
  if (bytes > bounds_.all - of_all_) return refuse("all groups", of_all_, bounds_.all);
  const std::uint64_t of_user = this->of_user(uid);
  if (of_user > bounds_.user || bytes > bounds_.user - of_user) {
    return refuse(fmt::format("user {}'s other groups", uid), of_user, bounds_.user);
  }
  auto room = std::make_shared<const KeyRoom>(shared_from_this(), uid, bytes);
  of_all_ += bytes;
  of_user_[uid] += bytes;
  return room;
}

void KeyMemory::give_back(uid_t uid, std::uint64_t bytes) noexcept {
  of_all_ -= bytes;
  const auto found = of_user_.find(uid);
  if ((found->second -= bytes) == 0) of_user_.erase(found);
}

void KeyMemory::free(uid_t uid, std::function<bool()> piece) {
  if (worker_ != nullptr) return worker_->submit_in_turn(uid, std::move(piece), [] {});
  while (!piece()) {
  }
}

}  // namespace gradwire::control
