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
#include <new>
#include <utility>

#include "base/result.h"
#include "ipc/worker.h"

namespace gradwire::control {

class KeyMemory;

/// What one group's keys take, until the last of them are freed. It counts as live until the first
/// are handed over to be freed, and then as waiting: so whoever has left a group may form the next
/// one at once.
class KeyRoom {
 public:
  KeyRoom(std::shared_ptr<KeyMemory> memory, uid_t uid, std::uint64_t bytes)
      : memory_(std::move(memory)), uid_(uid), bytes_(bytes) {}
  KeyRoom(const KeyRoom&) = delete;
  KeyRoom& operator=(const KeyRoom&) = delete;
  ~KeyRoom();

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Has the worker free something; it counts as waiting from now on.
  /// @param piece  frees some; returns whether that was all.
  void free(std::function<bool()> piece) const;

 private:
  const std::shared_ptr<KeyMemory> memory_;
  const uid_t uid_;
  const std::uint64_t bytes_;
  mutable bool waits_ = false;
};
using KeyRoomPtr = std::shared_ptr<const KeyRoom>;

/// Keys that the worker frees when the last owner lets go, which must be in the control thread.
/// @param room  null: they are freed at once.
template <class Keys>  // has free_some(), which returns whether that was all
[[nodiscard]] std::shared_ptr<Keys> freed_by_worker(std::unique_ptr<Keys> keys, KeyRoomPtr room) {
  if (room == nullptr) return keys;
  return {keys.release(), [room = std::move(room)](Keys* last) noexcept {
            try {
              room->free([keys = std::shared_ptr<Keys>(last), room] { return keys->free_some(); });
            } catch (const std::bad_alloc&) {
              // They were freed meanwhile: what could not be made had them already.
            }
          }};
}

class KeyMemory : public std::enable_shared_from_this<KeyMemory> {
 public:
  /// Of what is live. With what waits to be freed it may be twice as much.
  struct Bounds {
    std::uint64_t all = UINT64_MAX / 2;
    std::uint64_t user = UINT64_MAX / 2;
  };
  /// @param worker  null: all is freed at once. Outlives this, or stop() is called.
  explicit KeyMemory(const Bounds& bounds, ipc::Worker* worker = nullptr)
      : bounds_(bounds), worker_(worker) {}

  /// @return an error that names the bound, if there is not as much left.
  [[nodiscard]] Result<KeyRoomPtr> take(uid_t uid, std::uint64_t bytes);
  /// The worker is used no more.
  void stop() noexcept { worker_ = nullptr; }

  struct Use {
    std::uint64_t live = 0;
    std::uint64_t waits = 0;
    [[nodiscard]] std::uint64_t both() const noexcept { return live + waits; }
  };
  [[nodiscard]] const Use& of_all() const noexcept { return all_; }
  [[nodiscard]] Use of_user(uid_t uid) const noexcept {
    const auto found = users_.find(uid);
    return found == users_.end() ? Use{} : found->second;
  }

 private:
  friend class KeyRoom;
  void begin_to_wait(uid_t uid, std::uint64_t bytes) noexcept;
  void give_back(uid_t uid, std::uint64_t bytes, bool waits) noexcept;
  void free(uid_t uid, std::function<bool()> piece);

  const Bounds bounds_;
  ipc::Worker* worker_;
  Use all_;
  std::map<uid_t, Use> users_;
};

}  // namespace gradwire::control
