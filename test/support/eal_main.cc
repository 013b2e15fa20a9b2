// SPDX-License-Identifier: BSD-3-Clause
#include <rte_eal.h>

#include <cstdio>
#include <iterator>

#include "support/catch_runner.h"

// Tests alone may run without hugepages: they are about logic, not about placement.
int main(int argc, char** argv) {
  const char* eal_args[] = {"test",        "--no-huge",  "-m",
                            "1024",        "--no-pci",   "--no-telemetry",
                            "--no-shconf", "--lcores=0", "--log-level=4"};
  if (rte_eal_init(static_cast<int>(std::size(eal_args)), const_cast<char**>(eal_args)) < 0) {
    std::fprintf(stderr, "the EAL did not start without hugepages\n");
    return 1;
  }
  const int result = gradwire::test::run_tests(argc, argv);
  rte_eal_cleanup();
  return result;
}
