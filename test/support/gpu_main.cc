// SPDX-License-Identifier: BSD-3-Clause
#include <dlfcn.h>
#include <rte_eal.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "support/catch_runner.h"

// An EAL without hugepages and devices; GRADWIRE_DRIVERS names its drivers, separated by ':'.
int main(int argc, char** argv) {
  const char* drivers = std::getenv("GRADWIRE_DRIVERS");
  if (drivers == nullptr) {
    std::fprintf(stderr, "GRADWIRE_DRIVERS names no driver\n");
    return 1;
  }
  std::vector<std::string> words = {"test",
                                    "--no-huge",
                                    "-m",
                                    "1024",
                                    "--no-pci",
                                    "--no-telemetry",
                                    "--no-shconf",
                                    "--lcores=0",
                                    "--log-level=4",
                                    "--log-level=pmd.gpu.*:1",
                                    "--log-level=lib.gpudev:1"};
  // Not by the EAL's -d, which refuses a path with a folder that everybody may write to, such as
  // that of a clone in /tmp.
  std::istringstream list(drivers);
  for (std::string driver; std::getline(list, driver, ':');) {
    if (dlopen(driver.c_str(), RTLD_NOW) == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      return 1;
    }
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0) return 1;
  const int result = gradwire::test::run_tests(argc, argv);
  rte_eal_cleanup();
  return result;
}
