// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A rank's part in one communicator, with the two threads that NCCL has for it: a service thread
/// that listens, connects, registers and closes, and a progress thread that sends, receives and
/// tests. As soon as a connection is there the progress thread has it, while others still come.
/// A third thread plays CollNet if the plan asks for it. Allocates.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "nccl/endpoint.h"
#include "nccl/exchange.h"
#include "nccl/host.h"
#include "nccl/plan.h"

namespace gradwire::nccl {

class Communicator {
 public:
  Communicator(Host& host, const CommPlan& plan);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::uint64_t messages() const;
  [[nodiscard]] std::uint64_t later() const;
  /// Between the first and the last message.
  [[nodiscard]] double seconds() const { return seconds_; }

 private:
  /// A connection on its way.
  struct Opening {
    std::unique_ptr<Endpoint> endpoint;
    std::atomic<bool> open{false};
    void* listen_comm = nullptr;
    HandleBytes handle{};  ///< of the peer; the plug-in may keep its state there
    bool has_handle = false;
    std::uint64_t not_before_ns = 0;
  };

  void serve();
  void set_up();
  void listen();
  void connect_all();
  /// @return whether it is connected now.
  bool try_connect(Opening& one);
  bool try_accept(Opening& one);
  void churn_until_done();
  void close_all();
  void drive();
  void drive_round(unsigned& idle);
  void play_collnet();
  /// Runs a thread's work. An error that a peer's end explains is none.
  template <class Work>
  void guarded(Work work);
  /// Whether the communicator is over before its time: aborted, or a rank is gone.
  [[nodiscard]] bool stopped() const;
  [[nodiscard]] bool excused() const;
  [[nodiscard]] bool given_up() const;
  [[nodiscard]] std::uint64_t patience_ns() const;

  Host& host_;
  const CommPlan& plan_;
  std::vector<std::unique_ptr<Opening>> openings_;
  void* context_ = nullptr;
  bool initialised_ = false;
  int devices_ = 0;
  std::atomic<bool> failed_{false};  ///< a call failed, and a peer's end explains it
  std::atomic<bool> driven_{false};  ///< the progress thread has ended
  std::atomic<bool> ended_{false};
  std::atomic<bool> all_open_{false};
  std::uint64_t abort_at_ = 0;
  double seconds_ = 0;
  std::thread service_;
  std::thread progress_;
  std::thread collnet_;
};

}  // namespace gradwire::nccl
