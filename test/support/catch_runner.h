// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace gradwire::test {

/// Catch2's command line and the tests that it chooses; main()'s exit code.
int run_tests(int argc, char** argv);

}  // namespace gradwire::test
