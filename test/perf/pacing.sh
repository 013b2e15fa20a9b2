#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Pacing on real ports: two embedded ranks over memif at a set rate of the port; whether the rate is
# held (pacing.py); that the check fails without pacing; and two groups that share a paced port.
# Run it as root on a quiet machine, after scripts/test.sh has built.
#
# usage: test/perf/pacing.sh [BUILD_FOLDER]     default: build
. "$(dirname "$0")/../../scripts/lib/setup.sh"
build=$(cd "${1:-$repo_root/build}" && pwd)
perf=$build/app/gradwire-perf/gradwire-perf
. "$repo_root/scripts/lib/daemons.sh"
daemons_prepare "$build" 600

# embedded_pair NAME PORT_RATE_GBPS SIZES: writes NAME.trace, of rank 0.
embedded_pair() {
  local name=$1 rate=$2 sizes=$3 rank pids=()
  mkdir "$run_dir/$name"
  for rank in 0 1; do
    local role=server core=$((rank % $(nproc)))
    ((rank == 0)) || role=client
    taskset -c "$core" "$perf" --lcores "0@$core" --no-pci --in-memory --no-telemetry -m 128 \
      --log-level=error \
      --vdev "net_memif0,role=$role,socket=$run_dir/$name/s,socket-abstract=no,bsize=9216,rsize=7" \
      -- --transport gradwire --rank "$rank" --nranks 2 --rendezvous "$run_dir/$name" \
      --port "net_memif0=10.0.0.$((rank + 1))/24" --payload 8192 --sizes "$sizes" \
      --port-rate "$rate" $( ((rank == 0)) && printf -- '--tx-trace %s' "$run_dir/$name.trace") \
      >"$run_dir/$name-$rank.out" 2>&1 &
    pids+=($!)
    sleep 1
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || die "$name failed: $(tail -n 3 "$run_dir/$name-0.out" "$run_dir/$name-1.out")"
  done
}

status=0
step "a port's rate, held"
# About 1.5 s of each rate.
for what in "0.1 1M:18" "1 4M:48" "10 64M:30"; do
  read -r rate sizes <<<"$what"
  embedded_pair "rate-$rate" "$rate" "$sizes"
  "$python" "$repo_root/test/perf/pacing.py" "$run_dir/rate-$rate.trace" "$rate" || {
    note "the rate was not held"
    status=1
  }
done

step "the same check without pacing, which has to fail"
embedded_pair unpaced 0 16M:300
if "$python" "$repo_root/test/perf/pacing.py" "$run_dir/unpaced.trace" 1; then
  note "the check found nothing wrong: it is worth nothing"
  status=1
fi

step "two groups on a port of 2 Gbit/s, ops of 4 MB and of 256 KB"
daemon_memory_mib=256
memif_ring_start 2 --port.0.rate_gbps 2 || die "the daemons did not start."
pids=()
for job in "big 4M:100" "small 256K:1600"; do
  read -r name sizes <<<"$job"
  mkdir "$run_dir/$name"
  for rank in 0 1; do
    "$perf" --socket "$(daemon_socket $rank)" --rank "$rank" --nranks 2 \
      --rendezvous "$run_dir/$name" --sizes "$sizes" --no-check \
      --json "$run_dir/$name-$rank.json" >"$run_dir/$name-$rank.out" 2>&1 &
    pids+=($!)
  done
done
for pid in "${pids[@]}"; do
  wait "$pid" || die "a job failed: $(tail -n 3 "$run_dir"/*.out)"
done
"$python" - "$run_dir/big-0.json" "$run_dir/small-0.json" <<'PYTHON' || status=1
import json
import sys

rates = []
for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        result = json.load(file)["results"][0]
    # By the median op, so that the time in which one job is alone does not count.
    rates.append(result["size_bytes"] * 8 / result["time_p50_us"] / 1e3)
print(f"{rates[0]:.3f} and {rates[1]:.3f} Gbit/s of payload, ratio {rates[0] / rates[1]:.3f}")
PYTHON
exit "$status"
