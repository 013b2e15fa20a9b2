// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// An open file, for whatever reads and writes key files. Any thread; allocates nothing.
#pragma once

#include <unistd.h>

namespace gradwire::security {

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close_now(); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  /// @return whether the kernel had nothing to complain of.
  bool close_now() noexcept {
    const bool fine = fd_ < 0 || close(fd_) == 0;
    fd_ = -1;
    return fine;
  }

 private:
  int fd_;
};

}  // namespace gradwire::security
