#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two hosts, as two network namespaces joined by an Ethernet (veth), each with a daemon on
# af_packet. The daemons find each other by ARP, and answer ping, so that an operator can see the
# port alive.
. "$(dirname "$0")/_init.sh"

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

expect "sums over af_packet" "$python" "$repo_root/test/system/sums.py" \
  --sizes 0,1,1000,100000 $(sockets 2)

if command -v ping >/dev/null; then
  step "the kernel of host b pings the daemon of host a"
  ip -n "$netns_b" addr add 10.78.0.200/24 dev gwb
  ip netns exec "$netns_b" ping -q -c 3 -W 2 10.78.0.1 >"$run_dir/ping" ||
    { cat "$run_dir/ping" && fail "the daemon does not answer ping"; }
fi
