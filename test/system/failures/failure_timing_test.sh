#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A daemon is killed in the middle of ops, or frozen: who is told what. This is the short form of
# test/perf/failure_timing.sh. It prints how soon; the bound is far above what is promised (2 s),
# since tests share their cores with whatever else runs, and far below what ends an op otherwise.
exec "$(dirname "$0")/../../perf/failure_timing.sh" --trials 2 --ranks 3 --frozen-trials 1 \
  --bound-ms 15000
