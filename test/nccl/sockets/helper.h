// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A thread that carries pieces of messages over some of a channel's connections, so that the
/// thread that calls the plug-in copies nothing. One thread gives it work (NCCL's proxy thread of
/// the communicator) and never waits for it: work goes through a ring without a lock, and a bell
/// rings if the helper sleeps. The helper's own lists allocate.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <deque>
#include <thread>
#include <vector>

#include "nccl_net/abi.h"

namespace gradwire::nccl {

/// Values from one thread to another. push() is false if there is no room.
template <class T, std::size_t kEntries>
class Handover {
 public:
  bool push(const T& value) {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kEntries) return false;
    entries_[tail % kEntries] = value;
    tail_.store(tail + 1, std::memory_order_seq_cst);
    return true;
  }
  bool pop(T& value) {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_seq_cst)) return false;
    value = entries_[head % kEntries];
    head_.store(head + 1, std::memory_order_release);
    return true;
  }
  [[nodiscard]] bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_seq_cst);
  }

 private:
  std::array<T, kEntries> entries_{};
  std::atomic<std::size_t> head_{0};
  std::atomic<std::size_t> tail_{0};
};

/// Wakes a thread that is about to sleep, or sleeps, in poll().
class Bell {
 public:
  Bell();
  ~Bell();
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;

  /// By whoever has put work there. A system call only if the other thread sleeps.
  void ring();
  /// By the thread that sleeps: before it looks for work the last time, and after poll().
  void about_to_sleep() { asleep_.store(true, std::memory_order_seq_cst); }
  void awake();
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_ = -1;
  std::atomic<bool> asleep_{false};
};

/// Bytes that one connection carries.
struct Piece {
  char* data = nullptr;
  std::size_t bytes = 0;
  int connection = 0;                                ///< counted within the helper
  std::atomic<int>* left = nullptr;                  ///< counted down when they are through
  std::atomic<nccl_net::Status>* failure = nullptr;  ///< set before, if they cannot be
};

class Helper {
 public:
  /// @param sends  whether pieces are sent, or received.
  Helper(std::vector<int> sockets, bool sends);
  /// Ends the thread; pieces that are not through are left as they are. Sockets stay open.
  ~Helper();
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  bool push(const Piece& piece);

 private:
  void run();
  /// @return whether bytes moved.
  bool advance(std::size_t connection);
  void sleep();

  const std::vector<int> sockets_;
  const bool sends_;
  std::vector<std::deque<Piece>> queues_;  ///< by connection; the helper's
  Handover<Piece, 1024> handover_;
  Bell bell_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace gradwire::nccl
