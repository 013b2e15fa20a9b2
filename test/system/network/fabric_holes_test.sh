#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two racks and two spines, by paths of equal cost that no host sees. A spine loses all packets and
# says nothing, so that routes stay as they are: first the one, then the other, during large ops and
# during small ones, and while a group forms and is left. No op fails, no bit changes, nothing
# stands still for the silence limit (two path limits, each a quarter of it, are the simulator's to
# judge), and status, log and metrics tell of the other source ports.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_fabric.sh"

silence_ms=6000  # a path's limit is a quarter of it
fabric_flags=(--transport.source_ports 32 --timeouts.silence_ms "$silence_ms"
  --daemon.metrics 127.0.0.1:9464)
fabric_make 2 1500
# A leaf that no longer hears a spine would tell hosts that the other rack is unreachable.
for rack in 0 1; do
  for spine in 0 1; do
    leaf=$(fabric_leaf "$rack")
    far=$(fabric_spine "$spine")
    mac_of() { ip netns exec "$1" cat "/sys/class/net/$2/address"; }
    ip -n "$leaf" neigh replace "10.82.$spine.$((4 * rack + 2))" dev "up$spine" nud permanent \
      lladdr "$(mac_of "$far" "down$rack")"
    ip -n "$far" neigh replace "10.82.$spine.$((4 * rack + 1))" dev "down$rack" nud permanent \
      lladdr "$(mac_of "$leaf" "up$spine")"
  done
done
for host in 0 1 2 3; do fabric_daemon "$host"; done
sockets_in_order() { for host in "${order[@]}"; do daemon_socket "$host" && printf ' '; done; }

# spine_loses SPINE PER_THOUSAND
spine_loses() {
  for rack in 0 1; do fabric_lose "$(fabric_spine "$1")" "down$rack" "$2"; done
}
# moves NAME...: how often daemons took another source port so far, by these counters.
moves() {
  local host name
  for host in 0 1 2 3; do
    "$gradwire_cli" counters --socket "$(daemon_socket "$host")"
  done >"$run_dir/moves"
  for name in "$@"; do
    awk -v name="lane.0.transport.$name" '$1 == name {print $2}' "$run_dir/moves"
  done | awk '{sum += $1} END {print sum + 0}'
}
ops() {
  rm -f "$run_dir/ops.end"
  # shellcheck disable=SC2046
  background ops "$python" "$programs/progress.py" --size "$1" \
    --until "$run_dir/ops.end" --bound-ms "$silence_ms" $(sockets_in_order)
  eventually 60 grep -q running "$run_dir/ops.out" ||
    { cat "$run_dir/ops.out" && fail "the ops do not start"; }
}
finish_ops() {
  touch "$run_dir/ops.end"
  expect_ended "$1" ops
  tail -n 1 "$run_dir/ops.out"
}
# during SIZE NAME...: during ops of SIZE elements each spine is lost, first the one that carries
# more, and one of these counters goes up each time.
during() {
  local size=$1 bytes=() spine first=0 before counters=("${@:2}")
  for spine in 0 1; do bytes[spine]=$(fabric_bytes "$(fabric_spine "$spine")" down0); done
  ops "$size"
  sleep 0.5
  for spine in 0 1; do
    bytes[spine]=$(($(fabric_bytes "$(fabric_spine "$spine")" down0) - bytes[spine]))
  done
  ((bytes[0] >= bytes[1])) || first=1
  for spine in "$first" $((1 - first)); do
    step "spine $spine loses all packets during ops of $size elements"
    before=$(moves "${counters[@]}")
    spine_loses "$spine" 1000
    moved() { (($(moves "${counters[@]}") > before)); }
    eventually $((silence_ms / 1000)) moved || fail "no link takes another source port"
    sleep 1
    spine_loses "$spine" 0
    # What looks for a port off the ring counts once, until it has found one for a path limit.
    sleep $((silence_ms / 3000))
  done
  finish_ops "ops of $size elements went on all the time"
}

# Ranks alternate between the racks: each sends to the other one.
order=(0 2 1 3)
during 50000 source_port_moves
for host in 0 1 2 3; do
  "$gradwire_cli" counters --socket "$(daemon_socket "$host")" >"$run_dir/counters"
  if grep -q 'lane.0.transport.source_port_moves [1-9]' "$run_dir/counters"; then told=$host; fi
done
rank='rank [0-3] \(10\.81\.[01]\.[12]\)'
expect_text "the log says so" \
  "warn.*lane 0 (sends|acknowledges) to $rank from UDP port 49[0-9]{3} now: " \
  "$(daemon_log "$told")"
ip netns exec "$(fabric_host "$told")" "$python" -c \
  'import urllib.request as u; print(u.urlopen("http://127.0.0.1:9464/metrics").read().decode())' \
  >"$run_dir/metrics"
expect_text "and the metrics" 'gradwire_source_port_moves_total{lane="0"} [1-9]' "$run_dir/metrics"

# Two neighbors on the ring are in one rack, and those that are none are in two. The links of the
# ring move by their own search, so it may be that they alone used a spine. After both spines were
# lost everything has moved.
order=(0 1 2 3)
before_small=$(moves peer_source_port_moves)
during 300 source_port_moves peer_source_port_moves
(($(moves peer_source_port_moves) > before_small)) ||
  fail "no end off the ring takes another source port"
order=(0 2 1 3)

step "a spine loses all packets while a group forms, works and is left"
spine_loses 0 1000
# shellcheck disable=SC2046
expect "it sums" "$python" "$programs/sums.py" --sizes 1,1000,50001 \
  $(sockets_in_order)
background ops "$python" "$programs/progress.py" --size 50000 \
  --until "$run_dir/held.end" --bound-ms "$silence_ms" $(sockets_in_order)
shown() {
  local host
  for host in 0 1 2 3; do
    "$gradwire_cli" status --socket "$(daemon_socket "$host")"
  done >"$run_dir/status"
  grep -Eq 'sends from UDP port [0-9]+, acknowledges from [0-9]+, after [0-9]+ changes' \
    "$run_dir/status"
}
eventually 60 grep -q running "$run_dir/ops.out" ||
  { cat "$run_dir/ops.out" && fail "the ops do not start"; }
spine_loses 0 0
spine_loses 1 1000
eventually 10 shown || fail "the status does not tell of the source ports"
touch "$run_dir/held.end"
expect_ended "a group goes on whatever spine is lost" ops
spine_loses 1 0
for host in 0 1 2 3; do expect_stop "$host" TERM; done
