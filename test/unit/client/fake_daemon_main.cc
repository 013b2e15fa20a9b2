// SPDX-License-Identifier: BSD-3-Clause
// Fake daemons for tests of other languages: one per socket path of the command line. Prints
// "ready", takes the commands "hold", "go", "forget" and "remember" line by line from standard
// input, and ends with it, as if killed. "gpu": memory is on the CUDA device 0; "lie N": what is
// said of it is wrong (FakeDaemon::Lie); "held": prints what it has of the fake CUDA.
// "no formats", "formats": whether its status says that groups have wire formats. "memory N": a
// client may have N MiB of it.
#include <dlfcn.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "../gpu/fake_cuda.h"
#include "fake_daemon.h"

namespace {

void print_held() {
  using gradwire::fake_cuda::Held;
  Held held;
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW);
  void* function = library == nullptr ? nullptr : ::dlsym(library, "fake_cuda_held");
  if (function != nullptr) reinterpret_cast<void (*)(Held*)>(function)(&held);
  std::printf("%d allocations, %d events\n", held.allocations, held.events);
  std::fflush(stdout);
}

}  // namespace

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
      if (line == "gpu") daemon.on_gpu = true;
      if (line == "no formats") daemon.no_formats = true;
      if (line == "formats") daemon.no_formats = false;
      if (line.starts_with("lie ")) {
        daemon.lie = static_cast<gradwire::test::FakeDaemon::Lie>(std::stoi(line.substr(4)));
      }
      if (line.starts_with("memory ")) daemon.memory_limit = std::stoull(line.substr(7)) << 20;
      if (line == "held") print_held();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
