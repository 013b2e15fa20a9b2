// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How long calls into the plug-in take, and whether they wait. Each thread that calls has a
/// Recorder of its own. A call waits if the kernel put its thread to sleep on its own wish
/// meanwhile, by its count of voluntary context switches: no system call can sleep without it, and
/// nothing else counts there but a page that had to be fetched or a lock of the memory map. Threads
/// and files are made when a thread calls for the first time.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace gradwire::nccl {

enum class Call { kIsend, kIrecv, kTest, kListen, kConnect, kAccept, kRegMr, kDeregMr, kClose };
constexpr std::size_t kCalls = 9;
constexpr const char* kCallNames[kCalls] = {"isend",  "irecv",  "test",     "listen", "connect",
                                            "accept", "reg_mr", "dereg_mr", "close"};
/// What may never wait: NCCL's progress thread serves all channels.
constexpr bool must_not_wait(Call call) {
  return call == Call::kIsend || call == Call::kIrecv || call == Call::kTest;
}

/// Times in 16 steps for each power of two.
class Times {
 public:
  void add(std::uint64_t ns);
  void add(const Times& other);
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] std::uint64_t longest() const { return longest_; }
  /// The least time, of those that are told apart, which `share` of all do not exceed.
  [[nodiscard]] std::uint64_t quantile(double share) const;

 private:
  std::array<std::uint32_t, 1024> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t longest_ = 0;
};

struct CallFigures {
  Times wall;
  Times cpu;  ///< of the thread itself; counted if waits are
  std::uint64_t waits = 0;
};

/// Lies in memory that the driver shares with the ranks.
struct Figures {
  std::array<CallFigures, kCalls> calls;
  std::uint64_t bytes = 0;     ///< received
  std::uint64_t messages = 0;  ///< received
  std::uint64_t later = 0;     ///< isend and irecv that gave no request
  std::uint64_t all_reduces = 0;
  double seconds = 0;      ///< from the first message to the last, of the slowest thread
  double cpu_seconds = 0;  ///< of the whole process
};

std::uint64_t now_ns();

/// Times one call of the calling thread. Its end adds the call to the thread's figures.
class Timed {
 public:
  explicit Timed(Call call);
  ~Timed();
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  const Call call_;
  long switches_ = 0;
  std::uint64_t cpu_ns_ = 0;
  const std::uint64_t began_ns_;
};

/// Before any call: count waits, too. Two more system calls for each call.
void count_waits();

/// Adds what all threads recorded. When none of them calls any more.
void add_recorded(Figures& sum);

/// A call that has been under way for longer than that: which one, for how long, and in which
/// system call its thread is. "" if there is none.
std::string call_under_way_for(std::uint64_t ns);

}  // namespace gradwire::nccl
