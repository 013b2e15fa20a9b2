#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Debian's Python for the tests (GRADWIRE_PYTHON names another, where torch is not Debian's), also
# where it loads a library that was built with AddressSanitizer: the compiler's runtime has to be
# there before anything else, and libstdc++ right after it, or it finds no exceptions to intercept.
# Leaks are not looked for in Python, whose interpreter frees little when it ends; the daemon and
# the unit tests look for theirs.
if [[ ${GRADWIRE_SANITIZE:-none} == *address* ]]; then
  # gcc's is libasan, clang's libclang_rt.asan.
  asan=$(ldd "${GRADWIRE_LIBRARY:?is not set}" | awk '$1 ~ /asan/ {print $3}')
  LD_PRELOAD="$asan $(gcc -print-file-name=libstdc++.so)"
  export LD_PRELOAD ASAN_OPTIONS=${ASAN_OPTIONS:-halt_on_error=1}:detect_leaks=0
fi
exec "${GRADWIRE_PYTHON:-/usr/bin/python3}" "$@"
