// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Owner of a descriptor that is this process's alone: exec closes it, and so does fork in the
/// child, at once. Else a child, such as a worker that loads data, would keep connections open, and
/// nobody would hear that this process has ended. Any thread; making one allocates.
#pragma once

#include <utility>

namespace gradwire::nccl_net {

class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(Descriptor&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }

  /// Empty, with errno, if the system refuses. They are closed on exec; sockets of TCP do not
  /// block.
  static Descriptor tcp_socket(int family);
  static Descriptor accepted_from(int listener);
  static Descriptor event();

  /// @return -1 if it is empty, or was its parent's.
  [[nodiscard]] int get() const noexcept { return entry_ != nullptr ? entry_->fd : -1; }
  [[nodiscard]] explicit operator bool() const noexcept { return get() >= 0; }
  void reset() noexcept;

  /// In a list of all that are open here.
  struct Entry {
    int fd = -1;
    Entry* before = nullptr;
    Entry* behind = nullptr;
  };

 private:
  template <class Open>
  static Descriptor made_by(Open open);

  Entry* entry_ = nullptr;
};

/// Whether this process is the child of one that had descriptors. It has none of them, and cannot
/// use anything that its parent had.
bool was_forked() noexcept;

}  // namespace gradwire::nccl_net
