#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two hosts with two rails, each an Ethernet of its own with a switch between (a bridge), the first
# with IPv4 and the second with IPv6, and one lane, since af_packet has no more. The cable of the
# first rail is pulled out and put back, during ops of 256 MB, during small ones and while sums
# travel as int8: no op fails, no bit changes, and nothing stands still for the silence limit (two
# path limits, each a quarter of it, are the simulator's to judge, which has a clock of its own). A
# group forms while the cable is out, too.
. "$(dirname "$0")/../_init.sh"

silence_ms=4000 # a path's limit is a quarter of it
cuts=${CUTS:-1} # of small ops; half of them of large ones

make_namespaces 9000
switch=gw$$s
ip netns add "$switch"
on_exit ip netns del "$switch"
# rail N: devices gwNa and gwNb of the hosts, plugged into the switch's portNa and portNb.
for rail in 0 1; do
  ip -n "$switch" link add "rail$rail" type bridge 2>/dev/null || skip "this kernel has no bridges"
  ip -n "$switch" link set "rail$rail" mtu 9000 up
  for host in a b; do
    netns=netns_$host
    ip -n "$switch" link add "port$rail$host" type veth peer name "gw$rail$host" \
      netns "${!netns}"
    ip -n "$switch" link set "port$rail$host" mtu 9000 master "rail$rail" up
    ip -n "${!netns}" link set "gw$rail$host" mtu 9000 up
  done
done

daemon_memory_mib=256
daemon_netns[0]=$netns_a
daemon_netns[1]=$netns_b
start() {
  local host=$2 i=$1 rail vdevs=()
  for rail in 0 1; do
    vdevs+=(--vdev "net_af_packet$rail,iface=gw$rail$host,blocksz=65536,framesz=16384,framecnt=512")
  done
  daemon_write_config "$i" "net_af_packet0=10.70.0.$((i + 1))/24" \
    "net_af_packet1=fd71::$((i + 1))/64"
  daemon_start "$i" "${vdevs[@]}" -- --timeouts.silence_ms "$silence_ms"
}
start 0 a
start 1 b
for i in 0 1; do daemon_wait_ready "$i" || fail "daemon $i does not start over af_packet"; done

# The hosts see that their cable has no carrier, as if it was pulled out.
cut="ip -n $switch link set port0a down && ip -n $switch link set port0b down"
mend="ip -n $switch link set port0a up && ip -n $switch link set port0b up"
# during BYTES CUTS [OPTION...]
during() {
  # shellcheck disable=SC2046
  "$python" "$programs/rails_cut.py" --bytes "$1" --cuts "$2" --cut "$cut" \
    --mend "$mend" --still "$((silence_ms / 1000))" "${@:3}" $(sockets 2)
}

expect "a rail is pulled and put back during small ops" during 1000 "$cuts"
expect "and during ops of 256 MB" during $((256 << 20)) $(((cuts + 1) / 2))
expect "and of 64 MB as int8" during $((64 << 20)) $(((cuts + 1) / 2)) --wire int8
neighbor='rank . \(10.70.0..\)'
for i in 0 1; do
  expect_text "daemon $i says which port the lane left" \
    "warn.*lane 0 leaves port net_af_packet0: $neighbor is silent there, and answers at fd71:" \
    "$(daemon_log "$i")"
  expect_text "and that it is back" \
    "warn.*lane 0 takes port net_af_packet0 again: $neighbor answers there" "$(daemon_log "$i")"
done
"$gradwire_cli" counters --socket "$(daemon_socket 0)" >"$run_dir/counters"
expect_text "the counters show it" 'lane.0.transport.path_moves ([2-9]|[1-9][0-9])' \
  "$run_dir/counters"

step "a group forms while the cable is out"
eval "$cut"
expect "it sums by the other rail" "$python" "$programs/sums.py" \
  --sizes 1,300001 $(sockets 2)
for i in 0 1; do expect_stop "$i" TERM; done
