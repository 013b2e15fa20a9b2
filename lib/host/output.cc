// SPDX-License-Identifier: BSD-3-Clause
#include "host/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace gradwire::host {

Output::Output(int fd, std::size_t kept_bytes)
    : fd_(fd), is_terminal_(::isatty(fd) == 1), kept_bytes_(kept_bytes) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return;
  if (S_ISSOCK(info.st_mode)) {
    way_ = Way::kSend;
  } else if (S_ISFIFO(info.st_mode) || S_ISCHR(info.st_mode)) {
    // O_NONBLOCK belongs to the open file, which a shell or other processes may share: so it is
    // opened once more. A regular file would get a place of its own to write at, and needs none of
    // this.
    const std::string path = fmt::format("/proc/self/fd/{}", fd);
    const int own = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_APPEND);
    if (own >= 0) {
      fd_ = own;
      owns_fd_ = true;
    } else {
      way_ = Way::kPoll;
    }
  }
}

Output::~Output() {
  if (owns_fd_) ::close(fd_);
}

std::size_t Output::give(std::string_view bytes) const {
  std::size_t given = 0;
  while (given < bytes.size()) {
    const std::string_view rest = bytes.substr(given);
    ssize_t took = 0;
    if (way_ == Way::kSend) {
      took = ::send(fd_, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (way_ == Way::kPoll) {
      // A pipe that is ready takes so much without waiting.
      pollfd ready{fd_, POLLOUT, 0};
      if (::poll(&ready, 1, 0) != 1) break;
      took = ::write(fd_, rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF));
    } else {
      took = ::write(fd_, rest.data(), rest.size());
    }
    if (took < 0 && errno == EINTR) continue;
    if (took < 0 && errno == EAGAIN) break;
    // Nobody can read it any more: as if it had been taken.
    if (took <= 0) return bytes.size();
    given += static_cast<std::size_t>(took);
  }
  return given;
}

void Output::write(std::string_view line) {
  const std::lock_guard lock(mutex_);
  flush_locked();
  if (kept_.empty()) line.remove_prefix(give(line));
  if (line.empty()) return;
  if (kept_.size() + line.size() > kept_bytes_) {
    ++dropped_;
    ++untold_;
    return;
  }
  kept_ += line;
}

void Output::flush() {
  const std::lock_guard lock(mutex_);
  flush_locked();
}

void Output::flush_locked() {
  if (!kept_.empty()) kept_.erase(0, give(kept_));
  if (!kept_.empty() || untold_ == 0) return;
  kept_ = fmt::format("gradwire: {} lines were dropped here, since nobody read those before\n",
                      untold_);
  untold_ = 0;
  kept_.erase(0, give(kept_));
}

void Output::finish(int timeout_ms) {
  const std::lock_guard lock(mutex_);
  flush_locked();
  pollfd ready{fd_, POLLOUT, 0};
  while (!kept_.empty() && ::poll(&ready, 1, timeout_ms) == 1 && (ready.revents & POLLOUT) != 0) {
    flush_locked();
  }
}

std::uint64_t Output::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

Output& standard_output() {
  static auto* const output = new Output(STDOUT_FILENO);
  return *output;
}

Output& standard_error() {
  static auto* const output = new Output(STDERR_FILENO);
  return *output;
}

void say_last_words(const char* text) {
  constexpr int kWaitMs = 1'000;
  Output out(STDERR_FILENO);
  out.write(text);
  out.finish(kWaitMs);
}

}  // namespace gradwire::host
