# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# A fabric of network namespaces, for stories that source it after _init.sh: two racks with a router
# (leaf) each, and two spines that join them by paths of equal cost. The kernel forwards. Hosts of a
# rack share an Ethernet segment and a network, 10.81.RACK.0/24, whose gateway is .254 at the leaf.
#
#   host 0 .. gw0 ─┐                 ┌─ spine 0 ─┐                 ┌─ gw0 .. host 2
#   host 1 .. gw0 ─┴─ br0 leaf 0 ────┤           ├──── leaf 1 br0 ─┴─ gw0 .. host 3
#                           up0, up1 └─ spine 1 ─┘ up0, up1
#
# fabric_make HOSTS MTU makes it, with HOSTS hosts in each rack (1 to 100). A host is a namespace,
# fabric_host N, with one device, gw0. Device hN of the leaf's is its other end.

fabric_leaf() { printf 'gw%sl%s' "$$" "$1"; }
fabric_spine() { printf 'gw%ss%s' "$$" "$1"; }
fabric_host() { printf 'gw%sh%s' "$$" "$1"; }

fabric_namespace() {
  ip netns add "$1" 2>/dev/null || skip "this kernel or container has no network namespaces"
  on_exit ip netns del "$1"
  ip -n "$1" link set lo up
}

# fabric_rack HOST: its rack. fabric_address HOST: its address in IPv4, without the prefix.
fabric_rack() { printf '%s' $(($1 / fabric_hosts)); }
fabric_address() { printf '10.81.%s.%s' "$(fabric_rack "$1")" $(($1 % fabric_hosts + 1)); }
fabric_gateway() { printf '10.81.%s.254' "$(fabric_rack "$1")"; }

fabric_make() {
  fabric_hosts=$1
  fabric_mtu=$2
  local rack spine host leaf
  for rack in 0 1; do fabric_namespace "$(fabric_leaf "$rack")"; done
  for spine in 0 1; do fabric_namespace "$(fabric_spine "$spine")"; done
  for ((host = 0; host < 2 * fabric_hosts; host++)); do
    fabric_namespace "$(fabric_host "$host")"
  done
  for rack in 0 1; do
    leaf=$(fabric_leaf "$rack")
    fabric_router "$leaf"
    ip -n "$leaf" link add br0 type bridge 2>/dev/null || skip "this kernel has no bridges"
    ip -n "$leaf" link set br0 mtu "$fabric_mtu" address "02:81:00:00:0$rack:fe" up
    ip -n "$leaf" addr add "10.81.$rack.254/24" dev br0
  done
  for spine in 0 1; do fabric_router "$(fabric_spine "$spine")"; done
  for rack in 0 1; do
    for spine in 0 1; do fabric_uplink "$rack" "$spine"; done
    fabric_routes "$rack" 0 1
  done
  for ((host = 0; host < 2 * fabric_hosts; host++)); do fabric_plug "$host"; done
}

# fabric_router NAMESPACE: it forwards, and chooses among paths of equal cost by the ports too.
fabric_router() {
  ip netns exec "$1" sysctl -q -w net.ipv4.ip_forward=1 || skip "this kernel forwards nothing"
  ip netns exec "$1" sysctl -q -w net.ipv4.fib_multipath_hash_policy=1 ||
    skip "this kernel has no routes of several paths"
}

# The link from a leaf's device up$SPINE to that spine's device down$RACK.
fabric_uplink() {
  local leaf spine
  leaf=$(fabric_leaf "$1")
  spine=$(fabric_spine "$2")
  ip -n "$leaf" link add "up$2" type veth peer name "down$1" netns "$spine" 2>/dev/null ||
    skip "this kernel has no veth devices"
  ip -n "$leaf" link set "up$2" mtu "$fabric_mtu" up
  ip -n "$spine" link set "down$1" mtu "$fabric_mtu" up
  ip -n "$leaf" addr add "10.82.$2.$((4 * $1 + 1))/30" dev "up$2"
  ip -n "$spine" addr add "10.82.$2.$((4 * $1 + 2))/30" dev "down$1"
  ip -n "$spine" route add "10.81.$1.0/24" via "10.82.$2.$((4 * $1 + 1))"
}

# fabric_routes RACK SPINE...: what the leaf's routing protocol would say: the other rack is reached
# by these spines.
fabric_routes() {
  local rack=$1 spine hops=()
  shift
  for spine in "$@"; do
    hops+=(nexthop via "10.82.$spine.$((4 * rack + 2))" dev "up$spine")
  done
  ip -n "$(fabric_leaf "$rack")" route replace "10.81.$((1 - rack)).0/24" "${hops[@]}"
}

fabric_plug() {
  local leaf
  leaf=$(fabric_leaf "$(fabric_rack "$1")")
  ip -n "$leaf" link add "h$1" type veth peer name gw0 netns "$(fabric_host "$1")"
  ip -n "$leaf" link set "h$1" mtu "$fabric_mtu" master br0 up
  ip -n "$(fabric_host "$1")" link set gw0 mtu "$fabric_mtu" up
}

# fabric_daemon HOST [LINE]...: the daemon of that host, by af_packet, with the rack's gateway and
# these lines for its port, and the flags of fabric_flags. It has the index HOST.
fabric_flags=()
fabric_daemon() {
  local host=$1 frame=2048
  shift
  ((fabric_mtu <= 1984)) || frame=16384
  daemon_netns[host]=$(fabric_host "$host")
  daemon_write_config "$host" "net_af_packet0=$(fabric_address "$host")/24"
  printf '%s\n' "gateway = \"$(fabric_gateway "$host")\"" "$@" >"$run_dir/lines"
  sed -i "/^ip = /r $run_dir/lines" "$(daemon_config "$host")"
  daemon_start "$host" --vdev \
    "net_af_packet0,iface=gw0,blocksz=65536,framesz=$frame,framecnt=512" -- "${fabric_flags[@]}"
  daemon_wait_ready "$host" || fail "daemon $host does not start"
}

# fabric_bytes NAMESPACE DEVICE: sent by it until now.
fabric_bytes() { ip netns exec "$1" cat "/sys/class/net/$2/statistics/tx_bytes"; }

# --- what goes wrong ------------------------------------------------------------------------------

# fabric_cut NAMESPACE DEVICE, fabric_mend NAMESPACE DEVICE: both ends see that the link is down.
fabric_cut() { ip -n "$1" link set "$2" down; }
fabric_mend() { ip -n "$1" link set "$2" up; }

# fabric_lose NAMESPACE DEVICE PER_THOUSAND [arp|all]: so many of the frames that the device
# receives are lost and nobody sees it; 1000 makes the link one-way. 0 ends it.
fabric_lose() {
  local object
  ip netns exec "$1" ip link set dev "$2" xdpgeneric off
  (($3 > 0)) || return 0
  object=$run_dir/lose-$3-${4:-all}.o
  [[ -e $object ]] || "$(clang_name)" -O2 -target bpf -I"/usr/include/$(uname -m)-linux-gnu" \
    -DPER_THOUSAND="$3" -DONLY_ARP=$([[ ${4:-all} == arp ]] && echo 1 || echo 0) \
    -c "$repo_root/test/system/lose.bpf.c" -o "$object"
  ip netns exec "$1" ip link set dev "$2" xdpgeneric obj "$object" sec xdp 2>"$run_dir/lose.err" ||
    { cat "$run_dir/lose.err"; skip "this kernel or container takes no XDP program"; }
}

# fabric_slow NAMESPACE DEVICE MBIT: it sends no faster, and drops what does not wait in 256 KB.
fabric_slow() {
  ip netns exec "$1" tc qdisc replace dev "$2" root tbf rate "${3}mbit" burst 64kb limit 256kb ||
    skip "this kernel has no token bucket filter"
}

# fabric_leaf_mac RACK MAC [SECONDS]: the leaf's router is restarted, away for so long, and has
# another MAC address then.
fabric_leaf_mac() {
  local leaf
  leaf=$(fabric_leaf "$1")
  ip -n "$leaf" link set br0 down
  ip -n "$leaf" neigh flush all
  sleep "${3:-0}"
  ip -n "$leaf" link set br0 address "$2" up
}
