// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Long texts that clients get as files. A client may keep a file, but its memory belongs to the
/// daemon: a file that is too old is emptied, and so are the oldest files of a user who holds too
/// much. So each user holds at most kBytesOfUser in kFilesOfUser files plus one text, for at most
/// kAge. The control thread owns it; it makes system calls and allocates.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>

#include "base/types.h"
#include "ipc/unique_fd.h"

namespace gradwire::control {

/// A memfd that holds `text` and can only be emptied. Empty if the system has no descriptor left.
/// Any thread.
[[nodiscard]] ipc::UniqueFd text_file(const std::string& text);
/// That file, opened read-only.
[[nodiscard]] ipc::UniqueFd for_reading(const ipc::UniqueFd& file);

class LentTexts {
 public:
  /// Long enough, since a reader needs milliseconds.
  static constexpr TimeNs kAge = 10'000'000'000;
  static constexpr std::uint64_t kBytesOfUser = 32ull << 20;  ///< not counting the newest text
  static constexpr std::size_t kFilesOfUser = 16;             ///< the same

  void lend(ipc::UniqueFd file, std::uint64_t bytes, uid_t user, TimeNs now);
  /// Empties files that are too old.
  void take_back(TimeNs now);
  [[nodiscard]] std::uint64_t bytes() const noexcept;

 private:
  struct Lent {
    ipc::UniqueFd file;
    std::uint64_t bytes = 0;
    uid_t user = 0;
    TimeNs until = 0;
  };
  static void empty(Lent& lent) noexcept;

  std::deque<Lent> lent_;  ///< the oldest first
};

}  // namespace gradwire::control
