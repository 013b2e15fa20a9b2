// SPDX-License-Identifier: BSD-3-Clause
#include "support/catch_runner.h"

int main(int argc, char** argv) { return gradwire::test::run_tests(argc, argv); }
