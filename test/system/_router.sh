# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Two hosts with a router between them, as three network namespaces: the kernel of $netns_r forwards
# between gwb, which leads to host a, and gwc, which leads to host b. Addresses are the story's.
. "$(dirname "${BASH_SOURCE[0]}")/_init.sh"

make_namespaces 1500
netns_r=gw$$r
ip netns add "$netns_r"
on_exit ip netns del "$netns_r"
# The pair that joins the hosts becomes host a's link to the router; host b gets one of its own.
ip -n "$netns_b" link set gwb netns "$netns_r"
ip -n "$netns_r" link add gwc type veth peer name gwb netns "$netns_b"
ip -n "$netns_b" link set gwb mtu 1500 up
ip -n "$netns_r" link set gwb up
ip -n "$netns_r" link set gwc mtu 1500 up
daemon_netns[0]=$netns_a
daemon_netns[1]=$netns_b

# start INDEX ADDRESS [LINE]...: the daemon of that host, with these lines for its port.
start() {
  local index=$1 device
  device=$([[ $index == 0 ]] && echo gwa || echo gwb)
  daemon_write_config "$index" "net_af_packet0=$2"
  shift 2
  printf '%s\n' "$@" >"$run_dir/lines"
  sed -i "/^ip = /r $run_dir/lines" "$(daemon_config "$index")"
  daemon_start "$index" --vdev \
    "net_af_packet0,iface=$device,blocksz=65536,framesz=2048,framecnt=512"
  daemon_wait_ready "$index" || fail "daemon $index does not start"
}
# sums SIZES [SECONDS]: SECONDS for the group to form.
sums() {
  # shellcheck disable=SC2046
  "$python" "$programs/sums.py" --sizes "$1" --join-timeout "${2:-30}" $(sockets 2)
}
# forwarded FIELD: what the router's interface to host a counted.
forwarded() { ip netns exec "$netns_r" cat "/sys/class/net/gwb/statistics/$1"; }
