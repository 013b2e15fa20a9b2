#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Large all-reduces of two daemons through a link of a given rate, as they are (same), as bf16 and
# as int8, beside the ring over kernel TCP through the same link, in turns. By hand, on a machine
# with nothing else to do:
#   test/perf/formats.sh [GBIT] [TURNS] [BUILD]        default: 1 3 build
# Prints for each size the median of the turns' p50 in ms, and the ratios to same.
. "$(dirname "$0")/../../scripts/lib/setup.sh"
. "$repo_root/scripts/lib/shaped_link.sh"

gbit=${1:-1}
turns=${2:-3}
build=$(cd "${3:-$repo_root/build}" && pwd)
shaped_gbit_check GBIT "$gbit"
. "$repo_root/scripts/lib/daemons.sh"
daemons_prepare "$build" 900
daemon_pin_lanes 2
shaped_hosts "$gbit"
note "a UDP blast gets $(shaped_blast "${daemon_netns[0]}" "${daemon_netns[1]}" gwv1 \
  10.79.1.2) Gbit/s through the link"
shaped_daemons_start "$gbit" || die "the daemons did not start."

# perf ROW TURN: both ranks of gradwire-perf; the ring over TCP in the namespaces.
perf() {
  local row=$1 turn=$2 rank pid pids=() how
  mkdir "$run_dir/meet-$row.$turn"
  for rank in 0 1; do
    if [[ $row == tcp ]]; then
      how=(ip netns exec "${daemon_netns[rank]}" "$build/app/gradwire-perf/gradwire-perf"
        --transport tcp --tcp-address "10.79.1.$((rank + 1))")
    else
      how=("$build/app/gradwire-perf/gradwire-perf" --socket "$(daemon_socket "$rank")"
        --wire "$row")
    fi
    "${how[@]}" --rank "$rank" --nranks 2 --rendezvous "$run_dir/meet-$row.$turn" --warmup 1 \
      --sizes 1M:20,16M:5,64M:3 --json "$run_dir/$row.$turn.$rank" >"$run_dir/rank-$rank" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || die "$row: $(tail -n 1 "$run_dir/rank-0" "$run_dir/rank-1")"
  done
}

for ((turn = 0; turn < turns; turn++)); do
  for row in same bf16 int8 tcp; do perf "$row" "$turn"; done
done
grep -m1 'model name' /proc/cpuinfo
"$python" - "$run_dir" "$turns" <<'PY'
import json, statistics, sys
folder, turns = sys.argv[1], int(sys.argv[2])
times = {}
for row in ("same", "bf16", "int8", "tcp"):
    for turn in range(turns):
        for result in json.load(open(f"{folder}/{row}.{turn}.0"))["results"]:
            of_size = times.setdefault(result["size_bytes"], {})
            of_size.setdefault(row, []).append(result["time_p50_us"] / 1000)
for size, of in sorted(times.items()):
    medians = {row: statistics.median(of[row]) for row in of}
    print(f"{size} bytes:", ", ".join(
        f"{row} {ms:.2f} ms ({ms / medians['same']:.2f}x of same)" for row, ms in medians.items()))
PY
