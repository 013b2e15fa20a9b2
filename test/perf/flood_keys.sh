#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What forgeries cost a group whose packets are sealed, beside one in clear. Two daemons with a key
# in two namespaces, on af_packet over a veth, a lane on a core each. Somebody on the path, without
# the key, takes a data packet of the group that runs, and sends forgeries of 1,500 bytes to daemon
# 0, as many as the veth carries (forge_flood.cc): data, right but for their tag, and hellos
# likewise. A group in clear (off) gets the same with a wrong token, which it drops. In turns, for
# off, authenticate and encrypt: all-reduces alone (quiet), with the same flood into another veth
# (aside: what the sender costs this machine), and under both floods. Fails if forgeries are not
# dropped for their tag or token, or a sum is wrong; never for a time.
#
# usage: test/perf/flood_keys.sh [BUILD] [ROUNDS] [BYTES] [OPS] [FRAMES_PER_SECOND]
#        default: build 5 1048576 200, as many frames as go
# Prints a table: goodput, how much of it the flood takes against aside, and the bar: at most 5
# percentage points more than it takes from the group in clear.
. "$(dirname "$0")/../../scripts/lib/setup.sh"
build=$(cd "${1:-$repo_root/build}" && pwd)
rounds=${2:-5}
bytes=${3:-1048576}
ops=${4:-200}
rate=${5:-}
need_root
gradwired=$build/app/gradwired/gradwired
for program in "$gradwired" "$build"/{app/gradwire/gradwire,app/gradwire-perf/gradwire-perf} \
  "$build/test/perf/forge_flood" "$build/lib/client/libgradwire.so"; do
  [[ -e $program ]] || die "there is no $program: build all, and ninja -C $build perf."
done
reserve_hugepages 300
mount_hugetlbfs
. "$repo_root/scripts/lib/daemons.sh"
run_dir_make

. "$repo_root/test/perf/_flood_hosts.sh"
flood_hosts gwk$$
daemon_pin_lanes 2
# The sender is on daemon 1's core: what it takes from a core, it takes from the lane that is not
# flooded, under aside and flood alike.
sender_cpu=${daemon_lcores[1]##*@}
"$build/app/gradwire/gradwire" key make "$run_dir/cluster.key" >/dev/null
for i in 0 1; do
  side=$([[ $i == 0 ]] && echo a || echo b)
  daemon_write_config "$i" "net_af_packet0=10.79.0.$((i + 1))/24"
  # What goes past the queueing discipline nobody sees who listens at the device.
  daemon_start "$i" \
    --vdev "net_af_packet0,iface=gw$side,blocksz=65536,framesz=2048,framecnt=2048,qdisc_bypass=0" \
    -- --security.key_file "$run_dir/cluster.key" --timeouts.silence_ms 20000
done
for i in 0 1; do daemon_wait_ready "$i" || die "the daemons did not start."; done

# drops: JSON of what daemon 0's lane and its groups, all so far, have dropped, by reason
drops() {
  GRADWIRE_LIBRARY=$build/lib/client/libgradwire.so PYTHONPATH=$repo_root/python "$python" -c '
import collections, json, sys
from gradwire.client import daemon_status
lane = daemon_status(sys.argv[1])["lanes"][0]
drops = collections.Counter(lane["counters"]["drops"])
drops.update(lane["transport"]["drops"])
print(json.dumps(drops))' "$(daemon_socket 0)"
}

# measure ROUND MODE HOW [KIND DEVICE]: all-reduces, and what is sent and dropped meanwhile
measure() {
  local name=$1.$2.$3 rank pid pids=() flood_pid=
  mkdir "$run_dir/$name"
  drops >"$run_dir/$name/before"
  if [[ -n ${4:-} ]]; then
    ip netns exec "$b" taskset -c "$sender_cpu" "$build/test/perf/forge_flood" "$4" gwb "$5" 18515 \
      ${rate:+"$rate"} >"$run_dir/$name/sent" 2>"$run_dir/$name/sender.err" &
    flood_pid=$!
    on_exit end_process "$flood_pid"
  fi
  for rank in 0 1; do
    "$build/app/gradwire-perf/gradwire-perf" --socket "$(daemon_socket $rank)" --rank $rank \
      --nranks 2 --rendezvous "$run_dir/$name" --security "$2" --sizes "$bytes" -n "$ops" -w 20 \
      --json "$run_dir/$name/$rank.json" >"$run_dir/$name/$rank.out" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || die "$name failed: $(tail -n 3 "$run_dir/$name"/[01].out)"
  done
  if [[ -n $flood_pid ]]; then
    kill -TERM "$flood_pid"
    wait "$flood_pid" || die "the flood failed: $(cat "$run_dir/$name/sender.err")"
  fi
  drops >"$run_dir/$name/after"
}

for ((round = 1; round <= rounds; round++)); do
  for mode in off authenticate encrypt; do
    measure $round $mode quiet
    measure $round $mode aside data asidea
    measure $round $mode data data gwb
    measure $round $mode hello hello gwb
  done
  note "round $round of $rounds"
done
grep -m1 'model name' /proc/cpuinfo
printf 'load average %s\n\n' "$(cut -d' ' -f1-3 /proc/loadavg)"
"$python" "$repo_root/test/perf/flood_keys.py" "$run_dir" "$rounds" "$bytes"
