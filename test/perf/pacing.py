#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether what left a port was paced: reads gradwire-perf's --tx-trace.

usage: pacing.py TRACE RATE_GBPS      exit status 0: it was; 1: it was not

Ten windows of 100 ms, after the first 200 ms: their median is within 2 % of the rate. And no
stretch of time carries more than the rate and the bucket (a thousandth of a second of it, or two
packets of 9,216 bytes) and one frame.
"""
import statistics
import sys

WINDOW_NS = 100_000_000
SETTLE_NS = 200_000_000
FRAME = 9_300


def main() -> int:
    rate = float(sys.argv[2]) * 1e9
    with open(sys.argv[1], encoding="ascii") as file:
        bursts = [tuple(int(x) for x in line.split(",")[1:]) for line in file]
    bursts.sort()
    start = bursts[0][0] + SETTLE_NS
    windows = [0] * 10
    for at, size in bursts:
        window = (at - start) // WINDOW_NS
        if 0 <= window < len(windows):
            windows[window] += size
    if windows[-1] == 0:
        print("the trace is shorter than 1.2 s")
        return 1
    median = statistics.median(windows) * 8e9 / WINDOW_NS
    bound = max(rate / 8 / 1000, 2 * 9216) + FRAME
    ahead = most = 0.0
    before = bursts[0][0]
    for at, size in bursts:
        ahead = max(0.0, ahead - (at - before) * rate / 8e9) + size
        most = max(most, ahead)
        before = at
    off = median / rate - 1
    print(f"set {rate / 1e9:g} Gbit/s: median of ten 100 ms windows {median / 1e9:.4f} Gbit/s "
          f"({off:+.2%}), least {min(windows) * 80 / 1e9:.4f}, most {max(windows) * 80 / 1e9:.4f}; "
          f"ahead of the rate by {most:,.0f} bytes at most, {bound:,.0f} allowed")
    return 0 if abs(off) <= 0.02 and most <= bound else 1


if __name__ == "__main__":
    sys.exit(main())
