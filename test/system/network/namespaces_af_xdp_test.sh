#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two hosts, as two network namespaces joined by an Ethernet (veth), each with a daemon on af_xdp
# that has an IPv6 address (those of af_xdp_kernel_traffic have IPv4). A daemon that finds too large
# an MTU says which one works, and that one does.
. "$(dirname "$0")/../_init.sh"

make_namespaces 9000
daemon_netns[0]=$netns_a
daemon_netns[1]=$netns_b
daemon_write_config 0 "net_af_xdp0=fd79::1/64"
daemon_write_config 1 "net_af_xdp0=fd79::2/64"

step "an interface of MTU 9000: the daemon says what XDP takes"
start() { daemon_start "$1" --vdev "net_af_xdp0,iface=$2,start_queue=0,queue_count=1"; }
start 0 gwa
if daemon_wait_ready 0 2>/dev/null; then fail "an MTU of 9000 works with AF_XDP"; fi
wait "${daemon_pids[0]}" || true
grep -qiE 'libbpf.*(not supported|Operation not permitted)|XDP.*not supported' \
  "$(daemon_log 0)" && skip "this kernel or container does not allow AF_XDP sockets"
expect_text "by name" 'The MTU of gwa is 9000, but XDP works only up to [0-9]+,' "$(daemon_log 0)"
mtu=$(sed -n 's/.*XDP works only up to \([0-9]*\),.*/\1/p' "$(daemon_log 0)")
ip -n "$netns_a" link set gwa mtu "$mtu"
ip -n "$netns_b" link set gwb mtu "$mtu"

start 0 gwa
start 1 gwb
for i in 0 1; do
  daemon_wait_ready "$i" || fail "the daemons do not start over af_xdp with an MTU of $mtu"
done

expect_text "a packet wakes a lane that sleeps" 'port net_af_xdp0: .* rx interrupts yes' \
  "$(daemon_log 0)"
# shellcheck disable=SC2046
expect "sums over af_xdp" "$python" "$programs/sums.py" \
  --sizes 0,1,1000,100000 $(sockets 2)
