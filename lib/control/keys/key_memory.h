// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Bounds the memory of groups' keys, and frees them: 16 lanes' keys to 1,023 ranks are 140 MB,
/// which take the control thread tens of milliseconds to clear, so the worker does it, piece by
/// piece. The control thread calls all of it; it allocates.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "base/result.h"
#include "ipc/worker.h"

namespace gradwire::control {

class KeyMemory;

/// What one group's keys take, until the last of them are freed.
class KeyRoom {
 public:
  KeyRoom(std::shared_ptr<KeyMemory> memory, uid_t uid, std::uint64_t bytes)
      : memory_(std::move(memory)), uid_(uid), bytes_(bytes) {}
  KeyRoom(const KeyRoom&) = delete;
  KeyRoom& operator=(const KeyRoom&) = delete;
  ~KeyRoom();

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Has the worker free something.
  /// @param piece  frees some; returns whether that was all.
  void free(std::function<bool()> piece) const;

 private:
  const std::shared_ptr<KeyMemory> memory_;
  const uid_t uid_;
  const std::uint64_t bytes_;
};
using KeyRoomPtr = std::shared_ptr<const KeyRoom>;

/// Keys that the worker frees when the last owner lets go, which must be in the control thread.
/// @param room  null: they are freed at once.
template <class Keys>  // has free_some(), which returns whether that was all
[[nodiscard]] std::shared_ptr<Keys> freed_by_worker(std::unique_ptr<Keys> keys, KeyRoomPtr room) {
  if (room == nullptr) return keys;
  return {keys.release(), [room = std::move(room)](Keys* last) {
            room->free([keys = std::shared_ptr<Keys>(last), room] { return keys->free_some(); });
          }};
}

class KeyMemory : public std::enable_shared_from_this<KeyMemory> {
 public:
  struct Bounds {
    std::uint64_t all = UINT64_MAX;
    std::uint64_t user = UINT64_MAX;
  };
  /// @param worker  null: all is freed at once. Outlives this, or stop() is called.
  explicit KeyMemory(const Bounds& bounds, ipc::Worker* worker = nullptr)
      : bounds_(bounds), worker_(worker) {}

  /// @return an error that names the bound, if there is not as much left.
  [[nodiscard]] Result<KeyRoomPtr> take(uid_t uid, std::uint64_t bytes);
  /// The worker is used no more.
  void stop() noexcept { worker_ = nullptr; }

  [[nodiscard]] std::uint64_t of_all() const noexcept { return of_all_; }
  [[nodiscard]] std::uint64_t of_user(uid_t uid) const noexcept {
    const auto found = of_user_.find(uid);
    return found == of_user_.end() ? 0 : found->second;
  }

 private:
  friend class KeyRoom;
  void give_back(uid_t uid, std::uint64_t bytes) noexcept;
  void free(uid_t uid, std::function<bool()> piece);

  const Bounds bounds_;
  ipc::Worker* worker_;
  std::uint64_t of_all_ = 0;
  std::map<uid_t, std::uint64_t> of_user_;
};

}  // namespace gradwire::control
