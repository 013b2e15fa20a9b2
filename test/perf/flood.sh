#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What a flood of foreign packets costs a running group: two daemons in two namespaces on af_packet
# over a veth, a client on each, and all-reduces in turns without a flood (quiet), with the same
# flood into a veth of its own (aside: what the sender costs this machine), and with the flood into
# daemon 0's port (flood). The cost is flood against aside. What daemon 0's host sent meanwhile to
# the stranger's address is counted: that is what it reflects.
#
# usage: test/perf/flood.sh [BUILD_FOLDER] [ROUNDS] [BYTES]     default: build 5 262144
. "$(dirname "$0")/../../scripts/lib/setup.sh"
build=$(cd "${1:-$repo_root/build}" && pwd)
rounds=${2:-5}
bytes=${3:-262144}
. "$repo_root/scripts/lib/daemons.sh"
daemons_prepare "$build" 300

. "$repo_root/test/perf/_flood_hosts.sh"
flood_hosts gwf$$
mac=$(ip -n "$a" -br link show gwa | awk '{print $3}')
for i in 0 1; do
  side=$([[ $i == 0 ]] && echo a || echo b)
  daemon_write_config "$i" "net_af_packet0=10.79.0.$((i + 1))/24"
  daemon_start "$i" --vdev "net_af_packet0,iface=gw$side,blocksz=65536,framesz=2048,framecnt=2048"
done
for i in 0 1; do daemon_wait_ready "$i" || die "the daemons did not start."; done

# counter NAME: of daemon 0's lane
counter() {
  GRADWIRE_LIBRARY=$build/lib/client/libgradwire.so PYTHONPATH=$repo_root/python "$python" -c '
import sys
from gradwire.client import daemon_status
lane = daemon_status(sys.argv[1])["lanes"][0]
counters = lane.get("counters", lane)
value = counters.get(sys.argv[2], 0)
print(sum(value.values()) if isinstance(value, dict) else value)' "$(daemon_socket 0)" "$1"
}

# ops NAME: all-reduces a second
ops() {
  local name=$1 rank pids=() pid
  mkdir "$run_dir/$name"
  for rank in 0 1; do
    "$build/app/gradwire-perf/gradwire-perf" --socket "$(daemon_socket $rank)" --rank $rank \
      --nranks 2 --rendezvous "$run_dir/$name" -b "$bytes" -e "$bytes" -n 100 -w 10 \
      --json "$run_dir/$name-$rank.json" >"$run_dir/$name-$rank.out" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do
    wait "$pid" || die "$name failed: $(tail -n 3 "$run_dir/$name-0.out" "$run_dir/$name-1.out")"
  done
  awk -v bytes="$bytes" '$1 == bytes {print; exit}' "$run_dir/$name-0.out"
}

# flood DEVICE: starts it; its process is in $flood_pid
flood() {
  ip netns exec "$b" "$python" "$repo_root/test/perf/flood.py" "$1" "$mac" 10.79.0.1 18515 \
    >"$run_dir/flood.out" &
  flood_pid=$!
  on_exit end_process $!
  sleep 0.5
}
flood_end() {
  kill -TERM "$flood_pid"
  wait "$flood_pid" || true
  cat "$run_dir/flood.out"
}

for ((round = 1; round <= rounds; round++)); do
  printf 'round %d quiet: ' "$round" && ops "quiet$round"
  flood asidea
  printf 'round %d aside: ' "$round" && ops "aside$round"
  printf '        ' && flood_end
  echoes=$(counter echo_replies)
  drops=$(counter drops)
  flood gwb
  printf 'round %d flood: ' "$round" && ops "flood$round"
  printf '        ' && flood_end
  printf '        daemon 0 answered %d pings and dropped %d frames\n' \
    $(($(counter echo_replies) - echoes)) $(($(counter drops) - drops))
done
