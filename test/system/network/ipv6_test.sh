#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two hosts that have IPv6 alone, as network namespaces with a router between them: the kernel
# forwards. The daemons find their routers by neighbor discovery, one of them under its link-local
# address, and sum bit by bit. They answer pings and questions, hold their addresses against another
# host that wants one, and name a link that carries too little. What forged advertisements,
# redirects and routers say moves nobody.
. "$(dirname "$0")/../_router.sh"

for device in gwb gwc; do
  ip -n "$netns_r" addr add fe80::fe/64 dev "$device" nodad 2>/dev/null ||
    skip "this kernel has no IPv6"
done
ip netns exec "$netns_r" sysctl -q -w net.ipv6.conf.all.forwarding=1 ||
  skip "this kernel forwards nothing"
ip -n "$netns_r" addr add fd78::fe/64 dev gwb nodad
ip -n "$netns_r" route add fd79::/64 dev gwc

# counter NAME: of daemon 0.
counter() {
  "$gradwire_cli" counters --socket "$(daemon_socket 0)" |
    awk -v name="$1" '$1 == name {n = $2} END {print n + 0}'
}

start 0 fd78::1/64 'gateway = "fd78::fe"'
start 1 fd79::1/64 'gateway = "fe80::fe"'
before=$(forwarded rx_bytes)
expect "hosts of two IPv6 networks sum through a router" sums 0,1,1000,100000
(($(forwarded rx_bytes) - before > 400000)) || fail "the packets did not go through the router"
"$gradwire_cli" status --socket "$(daemon_socket 0)" --json >"$run_dir/status"
expect_text "the status shows the address" '"address": *"fd78::1/64"' "$run_dir/status"
expect_text "the log says who computes checksums" \
  'port net_af_packet0: UDP checksums are computed by the CPU' "$(daemon_log 0)"

step "the daemons answer pings of every size, as doctor sends them"
for ip in fd78::1 fd79::1; do
  ip netns exec "$netns_r" "$gradwire_cli" doctor --peer "$ip" >"$run_dir/doctor" 2>&1 || true
  expect_text "at $ip" "path MTU, $ip: 1500 of 1500 bytes" "$run_dir/doctor"
done

step "another host wants daemon 0's address: it is told that it is taken, and named"
ip -n "$netns_r" addr add fd78::1/64 dev gwb
refused() { ip -n "$netns_r" addr show dev gwb | grep -q 'fd78::1/64 .*dadfailed'; }
eventually 10 refused || fail "the kernel does not learn that fd78::1 is taken"
ip -n "$netns_r" addr del fd78::1/64 dev gwb
expect_text "daemon 0 names it" "has this port's address fd78::1 too" "$(daemon_log 0)"

step "somebody says that the router is elsewhere, that here is one, and that packets are too big"
gateway_mac=$(ip netns exec "$netns_r" cat /sys/class/net/gwb/address)
victim_mac=$(ip netns exec "$netns_a" cat /sys/class/net/gwa/address)
background spoof ip netns exec "$netns_r" "$python" "$hostile/discovery_spoof.py" \
  gwb fd78::1 "$victim_mac" fd78::fe "$gateway_mac" fd79::1
heard() { (($(counter port.net_af_packet0.neighbor_claims) > 10)); }
# Redirects and routers' advertisements are nobody's; of what is too big some goes on.
refused() { (($(counter lane.0.drops.foreign) > 100 && $(counter lane.0.neighbor_drops) > 100)); }
expect "groups form and sum meanwhile" sums 1000,100000
eventually 20 heard || fail "nobody heard the forged advertisements"
eventually 20 refused || fail "what is said of redirects, routers and sizes is not counted"
end_process "${background[spoof]}"
[[ $(counter port.net_af_packet0.neighbors_moved) == 0 ]] ||
  fail "a forged advertisement moved a neighbor"

step "the router's next link carries less: no group forms, by name"
ip netns exec "$netns_r" sysctl -q -w net.ipv6.conf.gwc.mtu=1400
if sums 1000 6 >"$run_dir/small" 2>&1; then fail "a group formed whose full packets do not pass"; fi
# Which of the two gives up first, and says what it saw, is chance.
expect_text "the log names the router and its link" \
  'the router fd78::fe says that its next link carries 1400 bytes, and a packet to fd79::1 has' \
  "$(daemon_log 0)"
