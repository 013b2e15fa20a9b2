#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Large all-reduces of daemons over memif, round the ring and by tiles, in turns. By hand, on a
# machine with nothing else to do:
#   test/perf/tiles.sh [RANKS] [TURNS] [BUILD]        default: 2 5 build
# Prints for each size the median of the turns' p50 in ms, of ring and tiles, and their ratio.
. "$(dirname "$0")/../../scripts/lib/setup.sh"

ranks=${1:-2}
turns=${2:-5}
build=$(cd "${3:-$repo_root/build}" && pwd)
. "$repo_root/scripts/lib/daemons.sh"
daemons_prepare "$build" $((450 * ranks))

for ((turn = 0; turn < turns; turn++)); do
  for shape in never always; do
    memif_ring_start "$ranks" --transport.tiles "$shape" || die "the daemons did not start."
    mkdir "$run_dir/meet-$turn-$shape"
    pids=()
    for ((rank = 0; rank < ranks; rank++)); do
      json=()
      ((rank > 0)) || json=(--json "$run_dir/$shape.$turn.json")
      "$build/app/gradwire-perf/gradwire-perf" --socket "$(daemon_socket "$rank")" --rank "$rank" \
        --nranks "$ranks" --rendezvous "$run_dir/meet-$turn-$shape" --warmup 2 \
        --sizes 1M:40,16M:10,64M:5 "${json[@]}" >"$run_dir/rank-$rank" 2>&1 &
      pids+=($!)
    done
    for pid in "${pids[@]}"; do
      wait "$pid" || die "$shape: $(tail -n 1 "$run_dir/rank-0" "$run_dir/rank-1")"
    done
    for ((rank = 0; rank < ranks; rank++)); do daemon_end "$rank" "${daemon_pids[rank]}"; done
  done
done
grep -m1 'model name' /proc/cpuinfo
"$python" - "$run_dir" "$turns" <<'PY'
import json, statistics, sys
folder, turns = sys.argv[1], int(sys.argv[2])
times = {}
for shape in ("never", "always"):
    for turn in range(turns):
        for row in json.load(open(f"{folder}/{shape}.{turn}.json"))["results"]:
            of_size = times.setdefault(row["size_bytes"], {})
            of_size.setdefault(shape, []).append(row["time_p50_us"] / 1000)
for size, of in sorted(times.items()):
    ring, tiles = (statistics.median(of[shape]) for shape in ("never", "always"))
    print(f"{size} bytes: ring {ring:.2f} ms, tiles {tiles:.2f} ms, {tiles / ring:.2f}x")
PY
