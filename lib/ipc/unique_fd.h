// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Owner of one file descriptor. Any thread; nothing here allocates.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace gradwire::ipc {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const noexcept { return fd_; }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  void reset() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  /// A second descriptor of the same open file, closed on exec; empty if the system refuses.
  [[nodiscard]] UniqueFd duplicate() const noexcept {
    return UniqueFd(::fcntl(fd_, F_DUPFD_CLOEXEC, 0));
  }

 private:
  int fd_ = -1;
};

}  // namespace gradwire::ipc
