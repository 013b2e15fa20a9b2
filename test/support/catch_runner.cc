// SPDX-License-Identifier: BSD-3-Clause
#define CATCH_CONFIG_RUNNER
#include "support/catch_runner.h"

#include <catch2/catch.hpp>

namespace gradwire::test {

int run_tests(int argc, char** argv) { return Catch::Session().run(argc, argv); }

}  // namespace gradwire::test
