// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/status_board.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

namespace gradwire::metrics {

using namespace std::chrono_literals;

TEST_CASE("whoever asks gets a status that was made after the question") {
  StatusBoard board;
  std::atomic<int> made{0};
  std::atomic<bool> stop{false};
  std::thread control([&] {
    while (!stop) {
      board.serve([&] {
        status::DaemonStatus status;
        status.daemon.pid = ++made;
        return status;
      });
      std::this_thread::sleep_for(1ms);
    }
  });
  int last = 0;
  for (int i = 0; i < 5; ++i) {
    const auto status = board.ask(10s);
    REQUIRE(status);
    const auto n = static_cast<int>(status->daemon.pid);
    CHECK(n > last);
    last = n;
  }
  stop = true;
  control.join();
  CHECK(made == last);  // nothing is made that nobody asked for
}

TEST_CASE("a question that nobody answers ends") {
  StatusBoard board;
  CHECK_FALSE(board.ask(10ms));
  board.close();
  CHECK_FALSE(board.ask(60s));
}

TEST_CASE("an answer that comes late is for nobody") {
  StatusBoard board;
  CHECK_FALSE(board.ask(1ms));
  // A late answer is for those who ask next.
  board.serve([] { return status::DaemonStatus{}; });
  CHECK_FALSE(board.ask(10ms));
}

}  // namespace gradwire::metrics
