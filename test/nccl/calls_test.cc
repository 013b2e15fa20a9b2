// SPDX-License-Identifier: BSD-3-Clause
// That the player's account of calls is right: its quantiles, and which calls wait.
#include "nccl/calls.h"

#include <sched.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

namespace gradwire::nccl {
namespace {

TEST_CASE("a quantile is at most a sixteenth above the time that it stands for") {
  Times times;
  for (std::uint64_t ns = 1; ns <= 100'000; ++ns) times.add(ns);
  CHECK(times.count() == 100'000);
  CHECK(times.longest() == 100'000);
  for (const double share : {0.01, 0.5, 0.9, 0.999}) {
    const auto exact = share * 100'000;
    const auto found = static_cast<double>(times.quantile(share));
    INFO("quantile " << share << " is " << found);
    CHECK(found >= exact);
    CHECK(found <= exact * 17 / 16 + 1);
  }
  CHECK(times.quantile(1) == 100'000);
}

TEST_CASE("times of other threads add up, and none makes no quantile") {
  Times sum;
  CHECK(sum.quantile(0.999) == 0);
  Times one;
  one.add(7);
  Times other;
  other.add(3'000'000'000'000u);
  sum.add(one);
  sum.add(other);
  CHECK(sum.count() == 2);
  CHECK(sum.quantile(0) == 7);
  CHECK(sum.longest() == 3'000'000'000'000u);
}

TEST_CASE("a call that sleeps counts as one that waits, and one that computes does not") {
  count_waits();
  std::thread thread([] {
    {
      const Timed sleeps(Call::kTest);
      usleep(1000);
    }
    const Timed computes(Call::kIrecv);
    const std::uint64_t began = now_ns();
    while (now_ns() - began < 1'000'000) {
    }
  });
  thread.join();
  Figures figures;
  add_recorded(figures);
  const auto of = [&](Call call) { return figures.calls[static_cast<std::size_t>(call)]; };
  CHECK(of(Call::kTest).wall.count() == 1);
  CHECK(of(Call::kTest).waits == 1);
  CHECK(of(Call::kTest).cpu.longest() < 1'000'000);
  CHECK(of(Call::kIrecv).waits == 0);
  CHECK(of(Call::kIrecv).wall.longest() >= 1'000'000);
}

TEST_CASE("a call that does not return is named with its system call") {
  CHECK(call_under_way_for(0).empty());
  std::thread thread([] {
    const Timed sleeps(Call::kConnect);
    usleep(300'000);
  });
  std::string found;
  for (int i = 0; i < 200 && found.empty(); ++i) {
    usleep(1000);
    found = call_under_way_for(10'000'000);
  }
  thread.join();
  CHECK(found.find("connect() has not returned for") == 0);
}

}  // namespace
}  // namespace gradwire::nccl
