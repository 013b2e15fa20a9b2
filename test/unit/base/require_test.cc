// SPDX-License-Identifier: BSD-3-Clause
#include "base/require.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <string>

using gradwire::require;

namespace {

struct End {
  int status = 0;
  std::string said;
};

/// How a process ends that requires `holds`, and what it said.
End end_of(bool holds) {
  int pipe_ends[2];
  REQUIRE(pipe(pipe_ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    dup2(pipe_ends[1], STDERR_FILENO);
    require(holds, "a queue has room for each of its entries");
    _exit(0);
  }
  close(pipe_ends[1]);
  End end;
  std::array<char, 1024> text{};
  for (ssize_t n = 0; (n = read(pipe_ends[0], text.data(), text.size())) > 0;) {
    end.said.append(text.data(), static_cast<std::size_t>(n));
  }
  close(pipe_ends[0]);
  REQUIRE(waitpid(child, &end.status, 0) == child);
  return end;
}

}  // namespace

TEST_CASE("what holds costs nothing, what does not ends the process and says what and where") {
  const End good = end_of(true);
  CHECK(WIFEXITED(good.status));
  CHECK(WEXITSTATUS(good.status) == 0);
  CHECK(good.said.empty());
  const End bad = end_of(false);
  REQUIRE(WIFSIGNALED(bad.status));
  CHECK(WTERMSIG(bad.status) == SIGABRT);
  CHECK(bad.said.find("a queue has room for each of its entries") != std::string::npos);
  CHECK(bad.said.find("require_test.cc") != std::string::npos);
}
