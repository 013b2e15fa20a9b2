// SPDX-License-Identifier: BSD-3-Clause
#include <rte_eal.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "support/catch_runner.h"

// gcc defines a macro for it, clang has a feature.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GRADWIRE_HAS_LSAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define GRADWIRE_HAS_LSAN
#endif
#if defined(GRADWIRE_HAS_LSAN)
#include <sanitizer/lsan_interface.h>
#endif

// Only tests may run without hugepages: they test logic, not the placement of memory.
int main(int argc, char** argv) {
  const char* eal_args[] = {"test",        "--no-huge",  "-m",
                            "1024",        "--no-pci",   "--no-telemetry",
                            "--no-shconf", "--lcores=0", "--log-level=4"};
  if (rte_eal_init(static_cast<int>(std::size(eal_args)), const_cast<char**>(eal_args)) < 0) {
    std::fprintf(stderr, "the EAL did not start without hugepages\n");
    return 1;
  }
  const int result = gradwire::test::run_tests(argc, argv);
  // The EAL is neither cleaned up nor left by exit handlers: lib/port/eal.h says why. A handler of
  // LeakSanitizer's would be left out too.
  std::fflush(nullptr);
#if defined(GRADWIRE_HAS_LSAN)
  __lsan_do_leak_check();
#endif
  std::_Exit(result);
}
