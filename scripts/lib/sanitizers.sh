# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# How programs built with sanitizers run.

# Programs are slower under a sanitizer, so they get more time.
timeout_multiplier=1
if [[ ${GRADWIRE_SANITIZE:-none} != none ]]; then
  timeout_multiplier=4
  suppressions=$repo_root/test/support
  # A finding ends the program. Containers of DPDK and of Catch2 are not built with the sanitizer,
  # so what ASan says of their overflows would be wrong.
  export ASAN_OPTIONS=halt_on_error=1:abort_on_error=1:detect_leaks=1:detect_container_overflow=0
  # In quotes, for the path may have a space.
  export LSAN_OPTIONS="suppressions='$suppressions/lsan.supp':print_suppressions=0"
  export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  export TSAN_OPTIONS="halt_on_error=1:suppressions='$suppressions/tsan.supp'"
fi
