// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/setup_socket.h"

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <vector>

#include "nccl_net/quiet_thread.h"
#include "peer.h"

namespace gradwire::nccl_net {
namespace {

std::atomic<int> g_signals{0};

/// A handler that breaks off calls, for the length of a test.
struct Handler {
  struct sigaction before {};
  Handler() {
    struct sigaction action {};
    action.sa_handler = [](int) { ++g_signals; };
    REQUIRE(sigaction(SIGUSR1, &action, &before) == 0);
    g_signals = 0;
  }
  ~Handler() { sigaction(SIGUSR1, &before, nullptr); }
};

struct Pair {
  int ends[2] = {-1, -1};
  Pair() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); }
  ~Pair() {
    for (const int fd : ends) ::close(fd);
  }
};

TEST_CASE("signals do not break off a word") {
  const Handler handler;
  const Pair pair;
  const std::vector<char> said(4u << 20, 'x');  // more than a socket holds
  std::vector<char> heard(said.size(), '.');
  std::atomic<bool> said_all{false};
  std::atomic<bool> heard_all{false};
  std::atomic<int> ended{0};
  const SetupTime until = SetupClock::now() + kBound;
  std::thread listens([&] {
    heard_all = hear_bytes(pair.ends[1], heard.data(), heard.size(), until);
    ++ended;
  });
  while (g_signals < 20) {
    pthread_kill(listens.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::thread speaks([&] {
    said_all = say_bytes(pair.ends[0], said.data(), said.size(), until);
    ++ended;
  });
  while (ended < 2) {
    pthread_kill(listens.native_handle(), SIGUSR1);
    pthread_kill(speaks.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  listens.join();
  speaks.join();
  CHECK(said_all);
  CHECK(heard_all);
  CHECK(heard == said);
}

TEST_CASE("a word that comes byte by byte has the time of one word") {
  const Pair pair;
  std::atomic<bool> over{false};
  std::thread trickles([&] {
    while (!over) {
      ::send(pair.ends[0], "x", 1, MSG_NOSIGNAL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  std::array<char, 100'000> word;
  const auto began = SetupClock::now();
  CHECK_FALSE(hear(pair.ends[1], word, began + std::chrono::milliseconds(50)));
  over = true;
  trickles.join();
}

TEST_CASE("the plug-in's threads take no signal of the process") {
  sigset_t blocked;
  std::atomic<bool> known{false};
  start_quietly([&] {
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    known = true;
  });
  REQUIRE(eventually([&] { return known.load(); }));
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGALRM}) {
    CHECK(sigismember(&blocked, number) == 1);
  }
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  CHECK(sigismember(&own, SIGTERM) == 0);
}

}  // namespace
}  // namespace gradwire::nccl_net
