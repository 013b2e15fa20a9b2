// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Words between the driver and the ranks, as NCCL's bootstrap carries them: handles of those who
/// listen, and news of aborts and deaths. The driver passes them on; a rank has a thread that takes
/// them. Any thread may ask; nothing waits but send(). Allocates.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "nccl_net/abi.h"

namespace gradwire::nccl {

using HandleBytes = std::array<char, nccl_net::kHandleBytes>;

/// A datagram of the socket pair of driver and rank.
struct Word {
  enum Kind : std::uint32_t {
    kHandle,      ///< number: the connection; to the rank that sends
    kCollHandle,  ///< number: the communicator; to each rank of it
    kAborted,     ///< number: the communicator; to all
    kKilled,      ///< from the driver, to all: rank `from` is gone
    kReached,     ///< to the driver: rank `from` is where it is to be killed
    kFailed,      ///< to the driver: text says why
  };
  Kind kind = kHandle;
  std::int32_t from = 0;
  std::int32_t to = 0;  ///< -1: all others; -2: the driver
  std::int32_t number = 0;
  HandleBytes handle{};
  std::array<char, 640> text{};
};

constexpr std::int32_t kToAll = -1;
constexpr std::int32_t kToDriver = -2;

constexpr int kCommsMax = 64;

class Exchange {
 public:
  /// @param socket  this rank's end; taken over.
  Exchange(int socket, int rank);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void send(Word::Kind kind, std::int32_t to, std::int32_t number, const HandleBytes& handle);
  void send(Word::Kind kind, std::int32_t to, std::int32_t number);
  /// Aborts a communicator, here at once and at the others when the word comes.
  void abort(int comm);
  /// Tells the driver why this rank fails. The driver ends it.
  void fail(const std::string& text);

  std::optional<HandleBytes> handle_of(int connection);
  std::optional<HandleBytes> coll_handle_of(int comm, int rank);
  /// Who has aborted the communicator; -1: nobody.
  [[nodiscard]] int aborted_by(int comm) const;
  /// Which rank is gone; -1: none.
  [[nodiscard]] int killed() const { return killed_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t killed_since_ns() const { return killed_since_ns_.load(); }

 private:
  void run();
  void send(const Word& word);

  const int socket_;
  const int rank_;
  std::mutex mutex_;
  std::map<int, HandleBytes> handles_;
  std::map<std::pair<int, int>, HandleBytes> coll_handles_;
  std::array<std::atomic<int>, kCommsMax> aborted_;
  std::atomic<int> killed_{-1};
  std::atomic<std::uint64_t> killed_since_ns_{0};
  std::thread thread_;
};

}  // namespace gradwire::nccl
