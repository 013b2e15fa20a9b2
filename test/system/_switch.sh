# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Hosts on one Ethernet segment, for stories that source it after _init.sh: two daemons on
# af_packet, and a host without one, $outsider, whose device gw0 is for what is not a daemon.

switch_mtu=1500  # of all devices; a story may set another before switch_make

# switch_make [FLAG...]: daemons 0 and 1 are 10.78.0.1 and .2, and start with these flags.
switch_make() {
  local switch=gw$$s host daemon
  ip netns add "$switch" 2>/dev/null || skip "this kernel or container has no network namespaces"
  on_exit ip netns del "$switch"
  # No host says anything of its own accord.
  ip netns exec "$switch" sysctl -q -w net.ipv6.conf.default.disable_ipv6=1 || true
  # Where the kernel has br_netfilter, a bridge drops what IPv4 does not allow.
  ip netns exec "$switch" sysctl -q -w net.bridge.bridge-nf-call-iptables=0 2>/dev/null || true
  ip -n "$switch" link add br0 type bridge 2>/dev/null || skip "this kernel has no bridges"
  ip -n "$switch" link set br0 mtu "$switch_mtu" up
  for host in h0 h1 h2; do
    ip netns add "gw$$$host"
    on_exit ip netns del "gw$$$host"
    ip netns exec "gw$$$host" sysctl -q -w net.ipv6.conf.default.disable_ipv6=1 || true
    ip -n "$switch" link add "$host" type veth peer name gw0 netns "gw$$$host" 2>/dev/null ||
      skip "this kernel has no veth devices"
    ip -n "$switch" link set "$host" mtu "$switch_mtu" master br0 up
    ip -n "gw$$$host" link set gw0 mtu "$switch_mtu" up
  done
  outsider=gw$$h2
  for daemon in 0 1; do
    daemon_netns[daemon]=gw$$h$daemon
    daemon_write_config "$daemon" \
      "net_af_packet0=10.78.0.$((daemon + 1))/24,$switch_mtu"
    daemon_start "$daemon" --vdev \
      net_af_packet0,iface=gw0,blocksz=65536,framesz=2048,framecnt=512 -- "$@"
  done
  for daemon in 0 1; do
    daemon_wait_ready "$daemon" || fail "the daemons do not start over af_packet"
  done
}
