// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How benches with an EAL begin and end: by _exit, as port::start_eal() asks for, and what went
/// wrong is said under the program's name.
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "port/eal.h"

namespace gradwire::perf {

[[noreturn]] inline void die(const std::string& why) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, why);
  std::fflush(nullptr);
  port::leave_eal();
  _exit(1);
}

/// @return the value; ends the program if there is none.
template <class T>
T need(Result<T> result) {
  if (!result) die(result.error().message);
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

/// All that main() does.
[[noreturn]] inline void run_program(int (*run)(int, char**), int argc, char** argv) {
  int code = 1;
  try {
    code = run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, error.what());
  }
  std::fflush(nullptr);
  _exit(code);
}

}  // namespace gradwire::perf
