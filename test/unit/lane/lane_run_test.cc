// SPDX-License-Identifier: BSD-3-Clause
// Lanes that run on threads of their own, in real time: the doorbell, the bells, the sleeps.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "lane/lane.h"
#include "two_ranks.h"

using namespace gradwire;
using namespace gradwire::lane;
using gradwire::test::AllReduceCase;

namespace {

class Threads {
 public:
  Threads(TwoRanks& ranks, std::uint8_t lanes) : ranks_(ranks), lanes_(lanes) {
    ranks_.set_threads(true);
    for (std::uint16_t r = 0; r < 2; ++r) {
      for (std::uint8_t lane = 0; lane < lanes; ++lane) {
        threads_.emplace_back([this, r, lane] { ranks_.rank(r).datapath->lane(lane).run(stop_); });
      }
    }
  }
  ~Threads() { stop(); }
  void stop() {
    stop_ = true;
    for (std::uint16_t r = 0; r < 2; ++r) {
      for (std::uint8_t lane = 0; lane < lanes_; ++lane) ranks_.rank(r).datapath->wake(lane);
    }
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
    ranks_.set_threads(false);
  }
  [[nodiscard]] double cpu_seconds() {
    double sum = 0;
    for (std::thread& thread : threads_) {
      clockid_t clock{};
      timespec used{};
      if (pthread_getcpuclockid(thread.native_handle(), &clock) == 0 &&
          clock_gettime(clock, &used) == 0) {
        sum += static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
      }
    }
    return sum;
  }

 private:
  TwoRanks& ranks_;
  std::uint8_t lanes_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

template <class Done>
bool wait_for(Done done, int seconds = 30) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

}  // namespace

TEST_CASE("running lanes sleep when idle, wake by the doorbell, and finish ops") {
  TwoRanksOptions options;
  options.lanes = 2;
  options.silence_ns = 20'000'000'000;  // the machine may be busy with other things
  TwoRanks ranks(options);
  Threads threads(ranks, options.lanes);
  for (std::uint16_t r = 0; r < 2; ++r) ranks.add_client_and_group(r);
  REQUIRE(wait_for([&] {
    for (std::uint16_t r = 0; r < 2; ++r) ranks.take_notices(r);
    return ranks.count_notices(0, command::NoticeType::kGroupFormed) == 2 &&
           ranks.count_notices(1, command::NoticeType::kGroupFormed) == 2;
  }));

  std::vector<AllReduceCase> cases;
  for (std::uint64_t i = 0; i < 20; ++i) {
    cases.emplace_back(2, 1, 1 + i * 1'500, DataType::kFloat32, RedOp::kSum, i, true);
  }
  std::uint64_t doorbells = 0;
  for (auto& each : cases) {
    for (std::uint16_t r = 0; r < 2; ++r) {
      ranks.post(r, each);
      if (ranks.rank(r).client->queue.daemon_sleeps()) {
        const std::uint64_t one = 1;
        REQUIRE(write(ranks.rank(r).client->port.doorbell_fd, &one, sizeof one) == 8);
        ++doorbells;
      }
    }
    for (std::uint16_t r = 0; r < 2; ++r) {
      std::optional<ipc::CompletionEntry> answer;
      REQUIRE(wait_for([&] {
        answer = ranks.rank(r).client->completion();
        return answer.has_value();
      }));
      INFO(answer->text);
      REQUIRE(static_cast<ErrorCode>(answer->status) == ErrorCode::kOk);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (auto& each : cases) {
    CHECK(each.wrong(0) == "");
    CHECK(each.wrong(1) == "");
  }
  INFO("doorbells rung: " << doorbells);

  // Idle, four lanes together use little of a core: they would use all of it if they only polled.
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double before = threads.cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const double used = threads.cpu_seconds() - before;
  INFO("CPU seconds of four idle lanes in half a second: " << used);
  CHECK(used < 0.25);
  CHECK(ranks.counter(0, &LaneCounters::sleeps) > 0);

  for (std::uint16_t r = 0; r < 2; ++r) ranks.leave(r);
  REQUIRE(wait_for([&] {
    for (std::uint16_t r = 0; r < 2; ++r) ranks.take_notices(r);
    return ranks.all_back(0) && ranks.all_back(1);
  }));
  threads.stop();
}
