#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A router that is restarted comes back with another MAC address, and groups that go by it live on:
# during small ops, during large ones, and if half of all answers of ARP are lost. Whoever says to
# be the router, and is not, changes nothing, nor does who sends redirects in its name, and reports
# of packets that are too big. Two hosts with one address are named.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_fabric.sh"

# A path's limit is a quarter of it. How long nothing moves is printed; that it is at most two
# limits is the simulator's to judge, which has a clock of its own. Here cores are shared, and the
# ops have to go on.
silence_ms=8000
fabric_flags=(--timeouts.silence_ms "$silence_ms")
fabric_make 2 1500
for host in 0 1 2; do fabric_daemon "$host"; done

# counter HOST NAME: of its port.
counter() {
  "$gradwire_cli" counters --socket "$(daemon_socket "$1")" |
    awk -v name="port.net_af_packet0.$2" '$1 == name {n = $2} END {print n + 0}'
}
# ops NAME SIZE HOST...: ops of that size between the hosts, in the background, until
# finish_ops NAME.
ops() {
  local name=$1 size=$2
  shift 2
  # shellcheck disable=SC2046
  background "$name" "$python" "$programs/progress.py" --size "$size" \
    --until "$run_dir/$name.end" --bound-ms "$silence_ms" \
    $(for host in "$@"; do daemon_socket "$host" && printf ' '; done)
  eventually 60 grep -q running "$run_dir/$name.out" ||
    { cat "$run_dir/$name.out" && fail "the ops of $name do not start"; }
}
finish_ops() {
  touch "$run_dir/$1.end"
  expect_ended "$2" "$1"
  tail -n 1 "$run_dir/$1.out"
}
# moved HOST COUNT
moved() { (($(counter "$1" neighbors_moved) >= $2)); }

# Each host has the router as its next or as its last neighbor, or both.
ops small 5000 0 1 2
for i in 1 2; do
  step "restart $i of the router of rack 0, during small ops"
  fabric_leaf_mac 0 "02:81:00:00:01:0$i" 0.2
  for host in 0 1; do
    eventually 20 moved "$host" "$i" || fail "host $host does not find the router's new address"
  done
done
finish_ops small "small ops go on"
expect_text "it is said" \
  'warn.*10\.81\.0\.254 does not answer at 02:81:00:00:01:01 any more.* does at 02:81:00:00:01:02' \
  "$(daemon_log 0)"

step "restart of both routers, during ops of 256 MB, while half of the answers of ARP are lost"
for host in 0 2; do fabric_lose "$(fabric_host "$host")" gw0 500 arp; done
# On a fast machine an op may end before the routers are away: then the next one meets them.
ops large $((64 << 20)) 0 2
under_way() { (($(fabric_bytes "$(fabric_host 2)" gw0) > sent_before + 20000000)); }
sent_before=$(fabric_bytes "$(fabric_host 2)" gw0)
eventually 120 under_way || fail "the large ops do not go on"
fabric_leaf_mac 0 "02:81:00:00:01:03" 0.2
fabric_leaf_mac 1 "02:81:00:00:02:03" 0.2
eventually 60 moved 0 3 || fail "host 0 does not find its router's new address during large ops"
eventually 60 moved 2 1 || fail "host 2 does not find its router's new address during large ops"
finish_ops large "large ops go on"
for host in 0 2; do fabric_lose "$(fabric_host "$host")" gw0 0; done

step "somebody in rack 0 says to be the router, and says of it what it never said, again and again"
ops spoofed 5000 0 1 2
before=$(counter 0 neighbors_moved)
claims() { (($(counter 0 neighbor_claims) > 1000)); }
background spoof ip netns exec "$(fabric_host 1)" "$python" "$hostile/arp_spoof.py" \
  gw0 10.81.0.1 "$(ip -n "$(fabric_host 0)" link show gw0 | awk '/link.ether/ {print $2}')" \
  10.81.0.254
background icmp ip netns exec "$(fabric_host 1)" "$python" "$hostile/icmp_spoof.py" \
  gw0 10.81.0.1 "$(ip -n "$(fabric_host 0)" link show gw0 | awk '/link.ether/ {print $2}')" \
  10.81.0.254 02:81:00:00:01:03 10.81.1.1
eventually 30 claims || fail "what is said of a known neighbor is not counted"
lane_counter() {
  "$gradwire_cli" counters --socket "$(daemon_socket 0)" |
    awk -v name="lane.0.$1" '$1 == name {n = $2} END {print n + 0}'
}
refused() { (($(lane_counter drops.foreign) > 100 && $(lane_counter neighbor_drops) > 100)); }
eventually 30 refused || fail "redirects and packets that are too big are not counted"
(($(counter 0 neighbors_moved) == before)) || fail "a living router was left for another address"
# Of one neighbor, every ten seconds.
said() { grep -qE 'warn.*02:66:66:66:66:66 says that it has .* 10\.81\.0\.254' "$(daemon_log 0)"; }
eventually 15 said || fail "nobody is told of what is said of a known neighbor"

step "the router moves meanwhile, and is found all the same"
fabric_leaf_mac 0 "02:81:00:00:01:04" 0.2
at_last() {
  "$gradwire_cli" status --socket "$(daemon_socket "$1")" |
    grep -q 'rank 2: 10\.81\.1\.1 at 02:81:00:00:01:04'
}
for host in 0 1; do
  eventually 20 at_last "$host" || fail "host $host does not find the router among the answers"
done
finish_ops spoofed "small ops go on"
for name in spoof icmp; do
  end_process "${background[$name]}"
  unset "background[$name]"
done

step "a host takes the address of host 0"
expect_stop 1 TERM
ip -n "$(fabric_host 1)" addr add 10.81.0.1/24 dev gw0
ip netns exec "$(fabric_host 1)" bash -c 'echo >/dev/udp/10.81.0.254/9' || true
same_mac=$(ip -n "$(fabric_host 1)" link show gw0 | awk '/link.ether/ {print $2}')
duplicates() { (($(counter 0 duplicate_addresses) > 0)); }
eventually 20 duplicates || fail "a host with the same address is not noticed"
expect_text "it is named" "error.*$same_mac has this port's address 10\\.81\\.0\\.1 too" \
  "$(daemon_log 0)"
"$gradwire_cli" status --json --socket "$(daemon_socket 0)" >"$run_dir/status.json"
expect_text "the status names it" "duplicate_mac.*$same_mac" "$run_dir/status.json"
