#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two hosts, as two network namespaces joined by an Ethernet (veth), each with a daemon on
# af_packet. The daemons find each other by ARP, and answer ping, so that an operator can see the
# port alive. Packets of a forger, who knows all but the link's token, are dropped. A flood of ARP
# disturbs nobody, and an MTU that became too small is told by name.
. "$(dirname "$0")/../_init.sh"

make_namespaces 1500
daemon_netns[0]=$netns_a
daemon_netns[1]=$netns_b
daemon_write_config 0 "net_af_packet0=10.78.0.1/24"
daemon_write_config 1 "net_af_packet0=10.78.0.2/24"
daemon_start 0 --vdev net_af_packet0,iface=gwa,blocksz=65536,framesz=2048,framecnt=512
daemon_start 1 --vdev net_af_packet0,iface=gwb,blocksz=65536,framesz=2048,framecnt=512
for i in 0 1; do
  daemon_wait_ready "$i" || fail "the daemons do not start over af_packet"
done

sums() {
  # shellcheck disable=SC2046
  "$python" "$programs/sums.py" --sizes "$1" $(sockets 2)
}
# counter NAME: of lane 0 of daemon 0.
counter() {
  "$gradwire_cli" counters --socket "$(daemon_socket 0)" |
    awk -v name="lane.0.$1" '$1 == name {n = $2} END {print n + 0}'
}

expect_text "a packet wakes a lane that sleeps" 'port net_af_packet0: .* rx interrupts yes' \
  "$(daemon_log 0)"
expect "sums over af_packet" sums 0,1,1000,100000

expect "packets that somebody forges in daemon 1's name change nothing, and are counted" \
  "$python" "$hostile/forged.py" --to "$netns_a/gwa" --by "$netns_b/gwb" \
  --packets 252 $(sockets 2)

if command -v ping >/dev/null; then
  step "the kernel of host b pings the daemon of host a"
  ip -n "$netns_b" addr add 10.78.0.200/24 dev gwb
  ip netns exec "$netns_b" ping -q -c 3 -W 2 10.78.0.1 >"$run_dir/ping" ||
    { cat "$run_dir/ping" && fail "the daemon does not answer ping"; }
fi

step "somebody on host b asks for the address of host a without end"
flood_from=$(date +%s%N)
passed_before=$(counter neighbor_frames)
background flood ip netns exec "$netns_b" "$python" "$hostile/arp_flood.py" \
  gwb 10.78.0.1
dropped() { (($(counter neighbor_drops) > 100)); }
eventually 20 dropped || fail "of a flood of ARP nothing is dropped"
expect "a group forms and sums meanwhile" sums 1000
passed=$(($(counter neighbor_frames) - passed_before))
flooded_ms=$((($(date +%s%N) - flood_from) / 1000000))
# A burst, one each millisecond, and what host b itself asks.
((passed <= flooded_ms + 200)) ||
  fail "in $flooded_ms ms $passed frames of ARP came to the control thread"
end_process "${background[flood]}"

step "the MTU of host b becomes smaller: no group forms, by name"
ip -n "$netns_b" link set gwb mtu 1400
if sums 1000 >"$run_dir/small" 2>&1; then fail "a group formed whose full packets do not pass"; fi
for rank in 0 1; do
  expect_text "rank $rank names the MTU" \
    "rank $rank member 0: port net_af_packet0: the kernel drops full packets of 1500 bytes.* MTU" \
    "$run_dir/small"
done
ip -n "$netns_b" link set gwb mtu 1500
expect "as it was before groups form, and nothing is stuck" sums 1,1000
