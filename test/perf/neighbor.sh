#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What one user's hostile processes cost another: an all-reduce of 1 MiB of two ranks over memif,
# and root's requests to a daemon, alone, beside three processes that only burn CPU, and beside
# three that do all that a user may: joins with made-up tables, commands that are refused, groups
# that end with thousands of unfinished receives. The three ways take turns. Prints a line for each
# run; ends what it started. Run it as root, after a build.
#
# usage: test/perf/neighbor.sh [TURNS [SECONDS [BUILD_FOLDER]]]
# HOGS="joins flood end" in the environment chooses fewer.
. "$(dirname "$0")/../../scripts/lib/setup.sh"
turns=${1:-3}
seconds=${2:-10}
build=${3:-$repo_root/build}
read -ra hogs <<<"${HOGS:-joins flood end}"
need_root
. "$repo_root/scripts/lib/daemons.sh"
run_dir_make
gradwired=$build/app/gradwired/gradwired
beside_pids=()
beside_end() {
  local pid
  for pid in "${beside_pids[@]}"; do end_process "$pid"; done
  beside_pids=()
}
on_exit beside_end

beside() {
  "$python" "$@" >>"$run_dir/beside.out" 2>&1 &
  beside_pids+=($!)
}

beside_start() {
  local i program=$repo_root/test/perf/neighbor.py socket
  socket=$(daemon_socket 0)
  case $1 in
    burners) for i in "${hogs[@]}"; do beside -c 'while True: pass'; done ;;
    hogs)
      for i in "${hogs[@]}"; do
        local what=(hog "$i")
        [[ $i != joins ]] || what=(joins)
        beside "$program" "${what[@]}" "$socket"
      done
      ;;
  esac
}

# measure NAME
measure() {
  local i pids=()
  rm -rf "$run_dir/meet" && mkdir "$run_dir/meet"
  for i in 0 1; do
    timeout -k 5 120 "$build/app/gradwire-perf/gradwire-perf" --transport daemon \
      --socket "$(daemon_socket $i)" --rank $i --nranks 2 --rendezvous "$run_dir/meet" \
      --sizes "1M:$((seconds * 40))" --warmup 5 --timeout 60 --json "$run_dir/$i.json" \
      >"$run_dir/perf-$i.out" 2>&1 </dev/null &
    pids+=($!)
  done
  "$python" "$repo_root/test/perf/neighbor.py" requests "$(daemon_socket 0)" "$seconds" \
    >"$run_dir/requests.json" || die "root's requests failed beside $1"
  for i in "${pids[@]}"; do
    wait "$i" || die "the all-reduces failed beside $1: $(tail -n 3 "$run_dir"/perf-*.out)"
  done
  "$python" - "$run_dir/0.json" "$run_dir/requests.json" "$1" <<'PYTHON'
import json, sys
row = json.load(open(sys.argv[1]))["results"][0]
print(f"{sys.argv[3]} | {row['time_p50_us'] / 1e3:.2f} ({row['time_p99_us'] / 1e3:.2f})",
      *(f"{what} {p50} ({most})" for what, (p50, _, most) in
        json.load(open(sys.argv[2])).items()), sep=" | ", flush=True)
PYTHON
}

cpu=$(lscpu | awk -F: '/^Model name|^CPU family|^Model:/ {
  gsub(/^ +/, "", $2); printf "%s %s, ", $1, $2}')
step "${cpu}kernel $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
memif_ring_start 2 --daemon.socket_mode 0666 || die "the daemons did not start."
chmod 755 "$run_dir"
note "turn beside | 1 MiB, ms, p50 (p99) | requests, ms, p50 (longest)"
for ((turn = 1; turn <= turns; turn++)); do
  for what in nobody burners hogs; do
    beside_start "$what"
    [[ $what == nobody ]] || sleep 2
    measure "$turn $what"
    beside_end
  done
done
for i in 0 1; do daemon_end $i "${daemon_pids[i]}"; done
