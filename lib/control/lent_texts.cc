// SPDX-License-Identifier: BSD-3-Clause
#include "control/lent_texts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace gradwire::control {

ipc::UniqueFd text_file(const std::string& text) {
  ipc::UniqueFd fd(::memfd_create("gradwire-status", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return {};
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(fd.get(), text.data() + done, text.size() - done);
    if (wrote <= 0) return {};
    done += static_cast<std::size_t>(wrote);
  }
  // It may still shrink, but only the daemon can do that: others get it read-only (for_reading()),
  // and its mode keeps them from opening it for writing.
  constexpr int kSeals = F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (::fchmod(fd.get(), S_IRUSR) != 0 || ::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) return {};
  return fd;
}

ipc::UniqueFd for_reading(const ipc::UniqueFd& file) {
  const std::string path = fmt::format("/proc/self/fd/{}", file.get());
  return ipc::UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

void LentTexts::empty(Lent& lent) noexcept {
  // No seal forbids it, and the file belongs to the daemon. If it fails all the same, the reader
  // keeps the text.
  static_cast<void>(::ftruncate(lent.file.get(), 0));
}

void LentTexts::lend(ipc::UniqueFd file, std::uint64_t bytes, uid_t user, TimeNs now) {
  std::uint64_t bytes_left = kBytesOfUser;
  std::size_t files_left = kFilesOfUser;
  for (auto at = lent_.rbegin(); at != lent_.rend(); ++at) {
    if (at->user != user) continue;
    if (files_left > 0 && at->bytes <= bytes_left) {
      --files_left;
      bytes_left -= at->bytes;
      continue;
    }
    files_left = 0;  // so that all older files are emptied too
    empty(*at);
    at->file.reset();
  }
  std::erase_if(lent_, [](const Lent& lent) { return !lent.file; });
  lent_.push_back({std::move(file), bytes, user, now + kAge});
}

void LentTexts::take_back(TimeNs now) {
  for (; !lent_.empty() && now >= lent_.front().until; lent_.pop_front()) empty(lent_.front());
}

std::uint64_t LentTexts::bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Lent& lent : lent_) bytes += lent.bytes;
  return bytes;
}

}  // namespace gradwire::control
