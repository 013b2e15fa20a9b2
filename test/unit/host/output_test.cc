// SPDX-License-Identifier: BSD-3-Clause
#include "host/output.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <string>

#include "base/require.h"

namespace gradwire::host {
namespace {

/// What is there now, without waiting.
std::string read_all(int fd) {
  REQUIRE(fcntl(fd, F_SETFL, O_NONBLOCK) == 0);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return text;
}

/// Until the reader takes no more: a line of 100 bytes each. @return how many.
int fill(Output& output) {
  const std::string line = std::string(99, 'x') + "\n";
  int lines = 0;
  while (output.dropped() == 0) {
    output.write(line);
    ++lines;
  }
  return lines - 1;
}

void check_ends(int reader, int writer) {
  Output output(writer, 10'000);
  // A writer that waits would stand here for ever.
  const int kept = fill(output);
  for (int i = 0; i < 6; ++i) output.write("lost\n" + std::string(200, 'y') + "\n");
  CHECK(output.dropped() == 7);
  CHECK((fcntl(writer, F_GETFL) & O_NONBLOCK) == 0);  // others may have the same end

  std::string text = read_all(reader);
  for (int i = 0; i < 1000 && text.find("were dropped") == std::string::npos; ++i) {
    output.flush();
    text += read_all(reader);
  }
  CHECK(text.find("lost") == std::string::npos);
  CHECK(text.find("gradwire: 7 lines were dropped here") == static_cast<std::size_t>(kept) * 100);
  output.write("and on\n");
  CHECK(read_all(reader) == "and on\n");
}

TEST_CASE("a pipe that nobody reads costs lines, not time, and its reader is told how many") {
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  check_ends(ends[0], ends[1]);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a socket that nobody reads, as the journal's") {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  check_ends(ends[0], ends[1]);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("output of a process whose reader has gone, or that was started without one") {
  std::array<int, 2> ends{};
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  close(ends[0]);
  Output gone(ends[1]);
  for (int i = 0; i < 10; ++i) gone.write("nobody reads it\n");
  CHECK(gone.dropped() == 0);
  close(ends[1]);
  Output closed(ends[1]);
  closed.write("nor this\n");
}

TEST_CASE("a process that must end does so though nobody reads its last words") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  {
    Output output(ends[1], 1);
    fill(output);
  }
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    alarm(60);
    dup2(ends[1], STDERR_FILENO);
    set_last_words(say_last_words);
    require(false, "a queue has room for each of its entries");
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("a file gets everything where the shell left off") {
  char name[] = "/tmp/gradwire_output_XXXXXX";
  const int fd = mkstemp(name);
  REQUIRE(fd >= 0);
  REQUIRE(write(fd, "before\n", 7) == 7);
  Output output(fd, 10);
  output.write("one\n");
  output.write(std::string(50, 'z') + "\n");
  REQUIRE(lseek(fd, 0, SEEK_SET) == 0);
  CHECK(read_all(fd) == "before\none\n" + std::string(50, 'z') + "\n");
  unlink(name);
  close(fd);
}

}  // namespace
}  // namespace gradwire::host
