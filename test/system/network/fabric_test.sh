#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two racks with a router each, joined by two spines: a group of four hosts across the racks. A
# spine is lost during ops, and is back; paths are lossy and slow, and for a second the spines lose
# all that comes one way. Bits are right, and no op fails. A link that is too small for full packets
# is named.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_fabric.sh"

silence_ms=6000
fabric_flags=(--timeouts.silence_ms "$silence_ms")
fabric_make 2 1500
for host in 0 1 2 3; do fabric_daemon "$host"; done
# Ranks alternate between the racks: each sends to the other one.
order=(0 2 1 3)
sockets_in_order() { for host in "${order[@]}"; do daemon_socket "$host" && printf ' '; done; }

ops() {
  # shellcheck disable=SC2046
  background ops "$python" "$programs/progress.py" --size 50000 \
    --until "$run_dir/ops.end" --bound-ms "$silence_ms" $(sockets_in_order)
  eventually 60 grep -q running "$run_dir/ops.out" ||
    { cat "$run_dir/ops.out" && fail "the ops do not start"; }
}
# carried SPINE: whether it carries the fabric's packets now.
carried() {
  local before
  before=$(fabric_bytes "$(fabric_spine "$1")" down0)
  moves() { (($(fabric_bytes "$(fabric_spine "$1")" down0) > before + 100000)); }
  eventually 10 moves "$1"
}

step "the links to the spines become too small: no group forms, and the router is named"
# Both racks', since whichever rank gives up first says why for all.
leaves_mtu() {
  local rack spine
  for rack in 0 1; do
    for spine in 0 1; do ip -n "$(fabric_leaf "$rack")" link set "up$spine" mtu "$1"; done
  done
}
leaves_mtu 1400
# shellcheck disable=SC2046
if "$python" "$programs/sums.py" --sizes 1000 --join-timeout 5 \
  $(sockets_in_order) >"$run_dir/small" 2>&1; then
  fail "a group formed whose full packets do not pass"
fi
told='the router 10\.81\.[01]\.254 says that its next link carries 1400 bytes, and a packet to 10'
expect_text "the error names the router" "rank [0-3] member 0: .*$told" "$run_dir/small"
expect_text "and so does the log" "warn.*$told" "$(daemon_log 0)"
leaves_mtu 1500
for rack in 0 1; do fabric_routes "$rack" 0 1; done

ops
step "ops go by the spines"
carried 0 || carried 1 || fail "nothing goes by the spines"

for spine in 0 1; do
  step "spine $spine is lost; the leaves learn it after 300 ms"
  for rack in 0 1; do fabric_cut "$(fabric_spine "$spine")" "down$rack"; done
  sleep 0.3
  for rack in 0 1; do fabric_routes "$rack" $((1 - spine)); done
  carried $((1 - spine)) || fail "nothing goes by the other spine"
  for rack in 0 1; do fabric_mend "$(fabric_spine "$spine")" "down$rack"; done
  for rack in 0 1; do
    ip -n "$(fabric_spine "$spine")" route replace "10.81.$rack.0/24" \
      via "10.82.$spine.$((4 * rack + 1))"
  done
done
for rack in 0 1; do fabric_routes "$rack" 0 1; done

step "a path loses a hundredth, another one is slow"
fabric_lose "$(fabric_leaf 1)" up0 10
fabric_slow "$(fabric_leaf 0)" up1 200
sleep 3
fabric_lose "$(fabric_leaf 1)" up0 0
ip netns exec "$(fabric_leaf 0)" tc qdisc del dev up1 root

step "both spines lose what comes from rack 0 for a second"
for spine in 0 1; do fabric_lose "$(fabric_spine "$spine")" down0 1000; done
sleep 1
for spine in 0 1; do fabric_lose "$(fabric_spine "$spine")" down0 0; done
touch "$run_dir/ops.end"
expect_ended "the ops went on all the time" ops
tail -n 1 "$run_dir/ops.out"
