# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Two NUMA nodes, NICs on node 1, CPUs 2 and 3 of node 1 isolated: lanes run there, their buffers
# are there though the control plane is on node 0, and next to nothing preempts them. The control
# run puts the lanes on CPUs 0 and 1, beside programs that compute, without lanes.nice.
. /opt/gradwire/vm/story.sh

mapfile -t nics < <(for device in /sys/bus/pci/devices/*; do
  [[ $(cat "$device/class") == 0x020000 ]] && basename "$device"
done)
((${#nics[@]} == 2)) || fail "there are ${#nics[@]} NICs, not 2"
for address in "${nics[@]}"; do
  say "$address: $(driver_of "$address"), node $(cat "/sys/bus/pci/devices/$address/numa_node")"
  [[ $(cat "/sys/bus/pci/devices/$address/numa_node") == 1 ]] || fail "$address is not on node 1"
done
say "isolated CPUs $(cat /sys/devices/system/cpu/isolated), tickless" \
  "$(cat /sys/devices/system/cpu/nohz_full), node 1 has" \
  "$(cat /sys/devices/system/node/node1/cpulist)"
[[ $(cat /sys/devices/system/cpu/isolated) == 2-3 ]] || fail "CPUs 2 and 3 are not isolated"

"$setup_host" --hugepages 0:64,1:400 --memlock unlimited --now \
  --bind "$(IFS=, && echo "${nics[*]}")" >"$work/setup.out" 2>&1 ||
  fail "setup-host.sh: $(cat "$work/setup.out")"
ulimit -l unlimited
gradwire doctor --nic "${nics[0]}" --nic "${nics[1]}" --cpus 2,3 >"$work/doctor" ||
  fail "doctor: $(cat "$work/doctor")"
for cpu in 2 3; do
  grep -q "^ok    cores, CPU $cpu: isolated: yes, tickless: yes, NUMA node 1" "$work/doctor" ||
    fail "doctor does not like CPU $cpu: $(cat "$work/doctor")"
done
gradwire doctor --nic "${nics[0]}" --cpus 0 |
  grep -q '^warn  cores, CPU 0: .*the NIC is on node 1' ||
  fail "doctor likes CPU 0"
say "doctor: $(tail -n 1 "$work/doctor")"

# lane_switches NAME: involuntary switches of a daemon's lane so far.
lane_switches() {
  gradwire status --json --socket "$work/$1.sock" | python3 -c '
import json, sys
print(sum(lane["involuntary_switches"] for lane in json.load(sys.stdin)["lanes"]))'
}
# pages NAME PATTERN: a daemon's pages by node, of mappings that match.
pages() {
  grep -E "$2" "/proc/${daemon_pid[$1]}/numa_maps" | tr ' ' '\n' |
    awk -F= '/^N[0-9]+=/ {sum[$1] += $2} END {for (n in sum) printf "%s=%d ", n, sum[n]}'
}
# buffers NAME: pages by node of what gradients, commands and packets of both daemons lie in.
buffers() {
  local rank
  for rank in 0 1; do
    printf 'gradients %s' "$(pages "$1-$rank" gradwire-memory)"
    printf 'rings %s' "$(pages "$1-$rank" gradwire-queue)"
    grep -oE 'mempool .* on pages of .*' "$work/$1-$rank.log" |
      sed -E 's/^mempool ([^:]+):.*of [0-9]+ [KMG]iB, /\1 /; s/,[^,]*$//
        s/node ([0-9]+): ([0-9]+) pages?/N\1=\2/g' | tr '\n' ' '
  done
}
daemon_memory=(--socket-mem 32,160)

# run NAME LCORES_A LCORES_B POLLING: prints a row of the table into $work/rows.
run() {
  local name=$1 before after began=$SECONDS on_node
  daemon "$name-0" "$2" "${nics[0]}" 10.9.1.1 "$4"
  daemon "$name-1" "$3" "${nics[1]}" 10.9.1.2 "$4"
  daemon_ready "$name-0"
  daemon_ready "$name-1"
  bench_rank() {
    printf '%s\n' taskset -c 0,1 gradwire-perf --socket "$work/$run_name-$1.sock"
  }
  run_name=$name
  before=$(($(lane_switches "$name-0") + $(lane_switches "$name-1")))
  # While it runs the clients' memory is there too.
  (
    for ((tries = 0; tries < 300; tries++)); do
      [[ -z $(pages "$name-0" gradwire-memory) || -z $(pages "$name-1" gradwire-memory) ]] || break
      sleep 0.2
    done
    sleep 1
    buffers "$name" >"$work/$name.pages"
    for rank in 0 1; do pages "$name-$rank" hugepages; done >"$work/$name.eal"
  ) &
  local watcher=$!
  bench "$name" --sizes 64:400,64K:150,1M:30 -w 3
  wait "$watcher"
  after=$(($(lane_switches "$name-0") + $(lane_switches "$name-1")))
  on_node=$(cat "$work/$name.pages")
  say "$name: $((after - before)) involuntary switches of two lanes in $((SECONDS - began)) s," \
    "pages: $on_node"
  say "the EAL's pages, the control plane's among them: $(cat "$work/$name.eal")"
  grep -hE 'lane 0: lcore' "$work/$name-0.log" "$work/$name-1.log" | sed 's/.*lane 0/    lane 0/'
  printf '%s %s %s %s\n' "$name" $((after - before)) $((SECONDS - began)) "$on_node" >>"$work/rows"
  switches=$((after - before))
  daemons_end
}

run isolated 0@0,1@2 0@1,1@3 busy
isolated_switches=$switches
placed=$(cat "$work/isolated.pages")
[[ $placed != *N0=* ]] || fail "not every buffer is on node 1: $placed"
for buffer in gradients rings packet; do
  (($(grep -oE "${buffer}[^ ]* N1=[0-9]+" <<<"$placed" | wc -l) == 2)) ||
    fail "not known of both daemons: where their $buffer lie: $placed"
done
grep -q 'lane 0: lcore 1 on CPU 2, NUMA node 1, isolated' "$work/isolated-0.log" ||
  fail "the lane is not isolated"
! grep -q 'warning lane 0' "$work/isolated-0.log" || fail "the daemon warns of its lane"

# Beside them two programs that always want the CPU, and lanes that are served no sooner than these.
nice=0
for cpu in 0 1; do
  taskset -c $cpu bash -c 'while :; do :; done' &
  hogs+=($!)
done
run shared 0@0,1@0 0@1,1@1 adaptive
kill "${hogs[@]}"
((isolated_switches * 20 < switches)) ||
  fail "$isolated_switches switches on isolated cores, $switches on shared ones"

printf 'table: two lanes, two nodes\n'
printf '| lanes | involuntary switches | seconds | pages by node (2 daemons) |\n'
printf '| --- | ---: | ---: | --- |\n'
while read -r name count seconds rest; do
  printf '| %s | %s | %s | %s |\n' "$name" "$count" "$seconds" "$rest"
done <"$work/rows"
"$setup_host" --undo >"$work/undo.out" 2>&1 || fail "--undo: $(cat "$work/undo.out")"
say "--undo: $(driver_of "${nics[0]}") has ${nics[0]} again"
[[ $(driver_of "${nics[0]}") == e1000e ]] || fail "--undo leaves ${nics[0]} with vfio"
echo 'story: done'
