// SPDX-License-Identifier: BSD-3-Clause
#include "client/completion_poll.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <catch2/catch.hpp>

namespace gradwire::client {
namespace {

struct Sources {
  Sources() : completion(::eventfd(0, EFD_NONBLOCK)), socket(::eventfd(0, EFD_NONBLOCK)) {}
  [[nodiscard]] bool readable() const {
    pollfd entry{poll.fd(), POLLIN, 0};
    return ::poll(&entry, 1, 0) == 1;
  }
  void open() { REQUIRE(poll.open(completion.get(), socket.get())); }

  ipc::UniqueFd completion;
  ipc::UniqueFd socket;
  CompletionPoll poll;
};

}  // namespace

TEST_CASE("the descriptor is readable as long as an outcome is not reported") {
  Sources sources;
  SECTION("of those from before it was asked for, too") {
    sources.poll.add_unreported();
    CHECK_FALSE(sources.poll.is_open());
    sources.open();
  }
  SECTION("and of those from after") {
    sources.open();
    CHECK_FALSE(sources.readable());
    sources.poll.add_unreported();
  }
  CHECK(sources.readable());
  sources.poll.add_unreported();
  sources.poll.remove_unreported();
  CHECK(sources.readable());
  sources.poll.remove_unreported();
  CHECK_FALSE(sources.readable());
}

TEST_CASE("the descriptor sees what comes from the daemon, but for what nobody can report") {
  Sources sources;
  sources.open();
  ipc::UniqueFd& source = GENERATE(true, false) ? sources.completion : sources.socket;
  ::eventfd_write(source.get(), 1);
  CHECK(sources.readable());
  const bool of_ops = &source == &sources.completion;
  sources.poll.choose(!of_ops, of_ops);
  CHECK(sources.poll.sees_completions() == !of_ops);
  CHECK_FALSE(sources.readable());
  sources.poll.choose(true, true);
  CHECK(sources.readable());
}

TEST_CASE("a fork's child has no descriptor any more") {
  Sources sources;
  sources.open();
  sources.poll.abandon();
  CHECK_FALSE(sources.poll.is_open());
  sources.poll.choose(false, false);
  sources.poll.add_unreported();
}

}  // namespace gradwire::client
