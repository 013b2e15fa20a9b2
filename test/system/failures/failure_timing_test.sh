#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A daemon is killed in the middle of ops, or frozen: who is told what, and how soon. This is the
# short form of test/perf/failure_timing.sh; the bound is half as long again as the one that is
# promised, since tests share their cores with whatever else runs.
exec "$(dirname "$0")/../../perf/failure_timing.sh" --trials 2 --ranks 3 --frozen-trials 1 \
  --bound-ms 3000
