#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What an all-reduce takes on cores that others use too: gradwire embedded, gradwire through the
# daemon and the TCP ring with sleeping waits, two ranks over memif and loopback, a core each, alone
# and beside one ordinary busy process pinned to each core. Several builds take turns, so that one
# minute's state of the machine is the same for all. Prints a line for each run; ends what it
# started. Run it as root, after building gradwired and gradwire-perf in each folder.
#
# usage: test/perf/shared_cores.sh TURNS BUILD_FOLDER...
# WAYS, SIZES and BESIDE in the environment choose less: WAYS="embedded daemon tcp",
# SIZES=64:4000,64K:1000,1M:200,16M:20, COLLECTIVE=all-reduce, BESIDE="nobody busy", CORES=0,1.
. "$(dirname "$0")/../../scripts/lib/setup.sh"
turns=${1:-3}
shift || true
builds=("${@:-$repo_root/build}")
read -ra ways <<<"${WAYS:-embedded daemon tcp}"
read -ra beside <<<"${BESIDE:-nobody busy}"
sizes=${SIZES:-64:4000,64K:1000,1M:200,16M:20}
collective=${COLLECTIVE:-all-reduce}
core=("${CORES:-0,1}")
core=("${core[0]%,*}" "${core[0]#*,}")
limit_s=120
need_root
. "$repo_root/scripts/lib/daemons.sh"
run_dir_make
busy_pids=()
# What the daemons are started with besides their configuration.
read -ra daemon_flags <<<"${DAEMON_FLAGS:-}"

busy_end() {
  local pid
  for pid in "${busy_pids[@]}"; do end_process "$pid"; done
  busy_pids=()
}
on_exit busy_end

busy_start() {
  local i
  for i in 0 1; do
    timeout "$limit_s" taskset -c "${core[i]}" "$python" -c 'while True: pass' &
    busy_pids+=($!)
  done
}

# perf BUILD WAY OPTIONS NAME: both ranks of gradwire-perf with the options of that array, in which
# %r is the rank and %c its core. Prints what rank 0 measured.
perf() {
  local build=$1 name=$2 i pids=() status=0
  local -n extra=$3
  rm -rf "$run_dir/meet" && mkdir "$run_dir/meet"
  for i in 0 1; do
    mapfile -t arguments < <(printf '%s\n' "${extra[@]//%r/$i}")
    arguments=("${arguments[@]//%c/${core[i]}}")
    [[ $name != embedded ]] || { ((i)) && arguments=("${arguments[@]//role=server/role=client}"); }
    timeout -k 5 "$limit_s" taskset -c "${core[i]}" "$build/app/gradwire-perf/gradwire-perf" \
      "${arguments[@]}" --collective "$collective" --rank "$i" --nranks 2 \
      --rendezvous "$run_dir/meet" --sizes "$sizes" \
      --warmup 5 --timeout 60 --json "$run_dir/$i.json" >"$run_dir/$i.out" 2>&1 </dev/null &
    pids+=($!)
    for ((tries = 0; tries < 100 && i == 0; tries++)); do
      [[ $name == embedded && ! -S $run_dir/link0.sock ]] || break
      sleep 0.05
    done
  done
  for i in "${pids[@]}"; do wait "$i" || status=1; done
  ((status == 0)) || { tail -n 3 "$run_dir/0.out" "$run_dir/1.out"; return 0; }
  "$python" - "$run_dir/0.json" "$4" <<'PYTHON'
import json, sys
def text(us):
    return f"{us / 1e3:.2f} ms" if us >= 999.5 else f"{us:.1f} us"
cells = [f"{text(r['time_p50_us'])} ({text(r['time_p99_us'])})"
         for r in json.load(open(sys.argv[1]))["results"]]
print(sys.argv[2], *cells, sep=" | ", flush=True)
PYTHON
}

run_embedded() {
  local options=(--lcores 0@%c --file-prefix "gws$$-%r" --no-telemetry --huge-unlink -m 128
    --no-pci --vdev "$(memif_vdev 0 server 0 0)" -- --transport gradwire
    --port "net_memif0=10.77.0.2%r/24,9000" --payload 8192)
  rm -f "$run_dir/link0.sock"
  perf "$1" embedded options "$2"
}

run_tcp() {
  local options=(--transport tcp --tcp-wait sleep)
  perf "$1" tcp options "$2"
}

run_daemon() {
  local i options=(--transport daemon --socket "$run_dir/gw%r.sock")
  gradwired=$1/app/gradwired/gradwired
  rm -f "$run_dir/link0.sock"
  for i in 0 1; do daemon_lcores[i]="0@${core[i]},1@${core[i]}"; done
  memif_ring_start 2 "${daemon_flags[@]}" || die "the daemons did not start."
  perf "$1" daemon options "$2"
  for i in 0 1; do daemon_end $i "${daemon_pids[i]}"; done
}

cpu=$(lscpu | awk -F: '/^Model name|^CPU family|^Model:/ {
  gsub(/^ +/, "", $2); printf "%s %s, ", $1, $2}')
step "${cpu}kernel $(uname -r), load $(cut -d' ' -f1-3 /proc/loadavg)"
note "turn build way beside | ${sizes//,/ | } | p50 (p99)"
for ((turn = 1; turn <= turns; turn++)); do
  for what in "${beside[@]}"; do
    for way in "${ways[@]}"; do
      for build in "${builds[@]}"; do
        [[ $way != tcp || $build == "${builds[0]}" ]] || continue
        [[ $what != busy ]] || busy_start
        "run_$way" "$build" "$turn $(basename "$(dirname "$build")") $way $what"
        busy_end
      done
    done
  done
done
