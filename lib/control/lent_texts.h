// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Long texts that clients were given as files. Whoever has a file may keep it, but not its memory,
/// which is the daemon's: a file that is too old is emptied, and so is the oldest of a user who has
/// had too much. So each user who asks holds at most kBytesOfUser in kFilesOfUser files and one
/// text more, for kAge. The control thread owns it; it makes system calls and allocates.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>

#include "base/types.h"
#include "ipc/unique_fd.h"

namespace gradwire::control {

/// A memfd that holds `text` and can only be emptied. None: the system has none left. Any thread.
[[nodiscard]] ipc::UniqueFd text_file(const std::string& text);
/// The same file for somebody who may read it and no more.
[[nodiscard]] ipc::UniqueFd for_reading(const ipc::UniqueFd& file);

class LentTexts {
 public:
  /// A reader takes milliseconds.
  static constexpr TimeNs kAge = 10'000'000'000;
  static constexpr std::uint64_t kBytesOfUser = 32ull << 20;  ///< beside the newest text
  static constexpr std::size_t kFilesOfUser = 16;             ///< the same

  void lend(ipc::UniqueFd file, std::uint64_t bytes, uid_t user, TimeNs now);
  /// Empties what is too old.
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
