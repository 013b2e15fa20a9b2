#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two daemons on one memif link, a client on each: gradwire-perf at 64 B, 1 MB, 64 MB and 256 MB,
# every result checked. Run it as root on a quiet machine, after scripts/test.sh has built.
#
# usage: test/perf/daemon_memif.sh [BUILD_FOLDER] [POLLING]     default: build adaptive
. "$(dirname "$0")/../../scripts/lib/setup.sh"
build=$(cd "${1:-$repo_root/build}" && pwd)
polling=${2:-adaptive}
. "$repo_root/scripts/lib/daemons.sh"
daemons_prepare "$build" 900
step "two daemons, joined by memif, polling $polling"
memif_ring_start 2 --lanes.polling "$polling" || die "the daemons did not start."
# name, bytes, iterations
for what in "64B 64 2000" "1MB 1048576 200" "64MB 67108864 20" "256MB 268435456 8"; do
  read -r name bytes iterations <<<"$what"
  mkdir "$run_dir/$name"
  pids=()
  for rank in 0 1; do
    "$build/app/gradwire-perf/gradwire-perf" --socket "$(daemon_socket $rank)" --rank $rank \
      --nranks 2 --rendezvous "$run_dir/$name" -b "$bytes" -e "$bytes" -n "$iterations" --check \
      >"$run_dir/$name-$rank.out" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || die "$name failed: $(tail -n 3 "$run_dir/$name-0.out" "$run_dir/$name-1.out")"
  done
  cat "$run_dir/$name-0.out"
done
