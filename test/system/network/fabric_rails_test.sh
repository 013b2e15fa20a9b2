#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two racks and two rails: each rail has a router in each rack and a link between the two. Hosts 0,
# 1 and 2 are in rack 0, host 3 in rack 1. The first rail's link between the racks is cut and put
# back during large ops and during small ones, which take no ring: no op fails, no bit changes, and
# nothing stands still for the silence limit. While it is out, the second rail's router in
# rack 0 is restarted with another MAC address. Host 1 has no neighbor in the other rack, so only
# ops of one hop tell it that nothing answers there.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_fabric.sh"

silence_ms=6000  # a path's limit is a quarter of it
cuts=${CUTS:-1}  # of large ops; of small ones one, since an end off the ring waits ever longer
large=$((64 << 20))
mtu=9000

rail_leaf() { printf 'gw%sr%sl%s' "$$" "$1" "$2"; }
rack_of() { printf '%s' $(($1 == 3)); }
for rail in 0 1; do
  for rack in 0 1; do
    leaf=$(rail_leaf "$rail" "$rack")
    fabric_namespace "$leaf"
    fabric_router "$leaf"
    ip -n "$leaf" link add br0 type bridge 2>/dev/null || skip "this kernel has no bridges"
    ip -n "$leaf" link set br0 mtu "$mtu" address "02:9$rail:00:00:0$rack:fe" up
    ip -n "$leaf" addr add "10.9$rail.$rack.254/24" dev br0
  done
  ip -n "$(rail_leaf "$rail" 0)" link add up0 mtu "$mtu" type veth \
    peer name up0 mtu "$mtu" netns "$(rail_leaf "$rail" 1)" ||
    skip "this kernel has no veth devices"
  for rack in 0 1; do
    leaf=$(rail_leaf "$rail" "$rack")
    ip -n "$leaf" link set up0 up
    ip -n "$leaf" addr add "10.9$rail.255.$((rack + 1))/30" dev up0
    ip -n "$leaf" route add "10.9$rail.$((1 - rack)).0/24" via "10.9$rail.255.$((2 - rack))"
  done
done
for host in 0 1 2 3; do
  fabric_namespace "$(fabric_host "$host")"
  for rail in 0 1; do
    leaf=$(rail_leaf "$rail" "$(rack_of "$host")")
    ip -n "$leaf" link add "h$host" mtu "$mtu" type veth \
      peer name "gw$rail" mtu "$mtu" netns "$(fabric_host "$host")"
    ip -n "$leaf" link set "h$host" master br0 up
    ip -n "$(fabric_host "$host")" link set "gw$rail" up
  done
done

daemon_memory_mib=256
for host in 0 1 2 3; do
  rack=$(rack_of "$host")
  daemon_netns[host]=$(fabric_host "$host")
  daemon_write_config "$host" "net_af_packet0=10.90.$rack.$((host + 1))/24" \
    "net_af_packet1=10.91.$rack.$((host + 1))/24"
  vdevs=()
  for rail in 0 1; do
    sed -i "/^ip = \"10.9$rail/a gateway = \"10.9$rail.$rack.254\"\nrail = \"rail$rail\"" \
      "$(daemon_config "$host")"
    vdevs+=(--vdev "net_af_packet$rail,iface=gw$rail,blocksz=65536,framesz=16384,framecnt=256")
  done
  daemon_start "$host" "${vdevs[@]}" -- --timeouts.silence_ms "$silence_ms"
done
for host in 0 1 2 3; do daemon_wait_ready "$host" || fail "daemon $host does not start"; done

cut="ip -n $(rail_leaf 0 0) link set up0 down"
# The kernel takes the route away with the link.
mend="ip -n $(rail_leaf 0 0) link set up0 up"
mend+=" && ip -n $(rail_leaf 0 0) route replace 10.90.1.0/24 via 10.90.255.2"
mend+=" && ip -n $(rail_leaf 0 1) route replace 10.90.0.0/24 via 10.90.255.1"
# during BYTES CUTS [OPTION]...: hosts 2 and 3 send data to the other rack.
during() {
  local bytes=$1 cuts=$2
  shift 2
  # shellcheck disable=SC2046
  "$python" "$programs/rails_cut.py" --bytes "$bytes" --cuts "$cuts" --hosts 2 \
    --cut "$cut" --mend "$mend" "$@" \
    --still "$((silence_ms / 1000))" $(sockets 4)
}
expect "a rail between the racks is cut and put back during large ops" during "$large" "$cuts"
expect "and during small ones" during 4000 1 --off-ring 2

step "it is cut again, and the other rail's router has another MAC address"
# shellcheck disable=SC2046
background ops "$python" "$programs/progress.py" --size 1000 \
  --until "$run_dir/ops.end" --bound-ms "$silence_ms" $(sockets 4)
eventually 60 grep -q running "$run_dir/ops.out" ||
  { cat "$run_dir/ops.out" && fail "the ops do not start"; }
$cut
# Host 1's data goes to host 2, in its own rack.
off_ring() {
  "$gradwire_cli" status --socket "$(daemon_socket 1)" |
    grep -q 'ranks off the ring it does not send by its first path'
}
eventually 30 off_ring || fail "host 1 does not take the other rail to the other rack"
leaf=$(rail_leaf 1 0)
ip -n "$leaf" link set br0 down
ip -n "$leaf" neigh flush all
sleep 0.2
ip -n "$leaf" link set br0 address 02:91:00:00:01:01 up
ip -n "$leaf" route replace 10.91.1.0/24 via 10.91.255.2
moved() {
  "$gradwire_cli" counters --socket "$(daemon_socket 1)" |
    grep -q '^port.net_af_packet1.neighbors_moved 1$'
}
eventually $((silence_ms / 1000)) moved || fail "host 1 does not find the router's new address"
sleep 1
touch "$run_dir/ops.end"
expect_ended "small ops go on" ops
tail -n 1 "$run_dir/ops.out"
for host in 0 1 2 3; do expect_stop "$host" TERM; done
