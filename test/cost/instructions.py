#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Instructions that a chunk costs two lanes, and a foreign frame one, counted by callgrind: no
clock, so the same on every machine and under every load. Fails above the bounds.

usage: instructions.py CHUNK_COST     the program that chunk_cost.cc makes, optimized by gcc
"""
import collections
import re
import subprocess
import shutil
import sys

Cost = collections.namedtuple("Cost", "what test function number most")

# The bounds are what was measured with gcc 12 -O2 on 2026-11-21 and some room for other libraries'
# versions. Raise them with a reason. Numbers are chunk_cost.cc's.
COSTS = [
    # All work of both ranks for 1,024 bytes: sending and receiving at hops 0 and 1, CRC, fold,
    # acknowledgements, rounds of the lanes. Two ops of 2,000 chunks. Measured 7,460.
    Cost("a chunk", "a chunk is copied no more often*", "measured_rounds", 2 * 2000, 7700),
    # Received, parsed, its CRC checked, not found, counted, freed.
    Cost("a foreign frame", "a flood of foreign frames*", "flooded_round", 100 * 16, 800),
]


def instructions(program: str, cost: Cost) -> float:
    """@return by item; 0 where nothing was counted."""
    run = subprocess.run(
        ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
         f"--toggle-collect=*{cost.function}*", program, cost.test],
        capture_output=True, text=True, timeout=300, check=False)
    found = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or found is None:
        print(run.stdout[-2000:], run.stderr[-2000:], sep="\n")
        return 0
    return int(found[1]) / cost.number


def main() -> int:
    if shutil.which("valgrind") is None:
        print("skipped: there is no valgrind")
        return 77
    good = True
    for cost in COSTS:
        each = instructions(sys.argv[1], cost)
        print(f"{cost.what}: {each:.0f} instructions, {cost.most} allowed")
        good &= 0 < each <= cost.most
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
