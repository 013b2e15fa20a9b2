#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions that a chunk costs two lanes, counted by callgrind: no clock, so the same on every
machine and under every load. Fails above the bound.

usage: instructions.py CHUNK_COST     the program that chunk_cost.cc makes, optimized by gcc
"""
import re
import subprocess
import shutil
import sys

# chunk_cost.cc's: chunks of one op, two ops.
CHUNKS = 2 * 2000
# Instructions by chunk of 1,024 bytes, all work of both ranks: sending and receiving at hops 0 and
# 1, CRC, fold, acknowledgements, rounds of the lanes. Measured 8,153 with gcc 12 -O2 on
# 2026-11-21; the rest is room for other libraries' versions. Raise it with a reason.
MOST = 8800


def main() -> int:
    if shutil.which("valgrind") is None:
        print("skipped: there is no valgrind")
        return 77
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
         "--toggle-collect=*measured_rounds*", sys.argv[1],
         "a chunk is copied no more often*"],
        capture_output=True, text=True, timeout=300, check=False)
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or found is None or int(found[1]) == 0:
        print(run.stdout[-2000:], run.stderr[-2000:], sep="\n")
        print("callgrind counted nothing")
        return 1
    each = int(found[1]) / CHUNKS
    print(f"{each:.0f} instructions a chunk, {MOST} allowed")
    return 0 if each <= MOST else 1


if __name__ == "__main__":
    sys.exit(main())
