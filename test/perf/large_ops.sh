#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Large all-reduces of two embedded ranks over memif, with and without payload CRCs, beside the
# driver alone with the same payloads, in turns. By hand, on a machine with nothing else to do:
#   test/perf/large_ops.sh [TURNS] [BUILD]
# Prints for each size and payload the median (and the best) p50 in ms, and times the driver's.
. "$(dirname "$0")/../../scripts/lib/setup.sh"
. "$repo_root/scripts/lib/daemons.sh"

turns=${1:-4}
gradwire_perf=${2:-$repo_root/build}/app/gradwire-perf/gradwire-perf
[[ -x $gradwire_perf ]] || die "there is no $gradwire_perf: build first."
need_root
reserve_hugepages 1400
mount_hugetlbfs
run_dir_make

# measure NAME TURN OPTION...: both ranks, each on a CPU.
measure() {
  local rank role pids=() name=$1 turn=$2
  shift 2
  rm -rf "$run_dir/meet" "$run_dir/link0.sock"
  mkdir "$run_dir/meet"
  for rank in 0 1; do
    role=server
    ((rank == 0)) || role=client
    local json=()
    ((rank == 1)) || json=(--json "$run_dir/$name.$turn.json")
    taskset -c "$rank" timeout 120 "$gradwire_perf" --lcores "0@$rank" --no-pci --huge-unlink \
      --file-prefix "gwl$$-$rank" --no-telemetry -m 128 --vdev "$(memif_vdev 0 $role 0 $rank)" \
      -- --rank $rank --nranks 2 --rendezvous "$run_dir/meet" \
      --port "net_memif0=10.77.0.$((rank + 1))/24,9000" --busy --warmup 3 \
      --sizes 16M:20,64M:8,256M:4 "${json[@]}" "$@" >"$run_dir/rank-$rank" 2>&1 &
    pids+=($!)
    while ((rank == 0)) && [[ ! -S $run_dir/link0.sock && -n $(process_state "${pids[0]}") ]]; do
      sleep 0.05
    done
  done
  for rank in 0 1; do
    wait "${pids[rank]}" || die "$name: $(tail -n 1 "$run_dir/rank-$rank")"
  done
}

for ((turn = 1; turn <= turns; turn++)); do
  step "turn $turn of $turns"
  for payload in 8192 1408; do
    for integrity in payload link; do
      measure "$integrity-$payload" "$turn" --transport gradwire --payload "$payload" \
        --integrity "$integrity"
    done
    measure "bare-$payload" "$turn" --transport bare --payload "$payload"
  done
done
"$python" - "$run_dir" <<'PYTHON'
import collections, json, pathlib, statistics, sys

times = collections.defaultdict(list)
for path in pathlib.Path(sys.argv[1]).glob("*.json"):
    name, payload = path.name.split(".")[0].split("-")
    for result in json.loads(path.read_text())["results"]:
        times[name, payload, result["size_bytes"] >> 20].append(result["time_p50_us"] / 1e3)
for payload in ("8192", "1408"):
    for size in (16, 64, 256):
        bare = times["bare", payload, size]
        for name in ("bare", "payload", "link"):
            own = times[name, payload, size]
            print("%4s B %3d MB %-7s %6.2f ms (%6.2f), %.2f (%.2f) times the driver's" % (
                payload, size, name, statistics.median(own), min(own),
                statistics.median(own) / statistics.median(bare), min(own) / min(bare)))
PYTHON
