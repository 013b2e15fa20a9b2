// SPDX-License-Identifier: BSD-3-Clause
// Fake daemons for tests of other languages: one per socket path of the command line. Prints
// "ready", takes the commands "hold", "go", "forget" and "remember" line by line from standard
// input, and ends with it, as if killed.
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "fake_daemon.h"

int main(int argc, char** argv) {
  try {
    gradwire::test::FakeDaemon daemon(std::vector<std::string>(argv + 1, argv + argc));
    std::puts("ready");
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
      if (line == "hold") daemon.hold_ops = true;
      if (line == "go") daemon.hold_ops = false;
      if (line == "forget") daemon.ignore_requests = true;
      if (line == "remember") daemon.ignore_requests = false;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
