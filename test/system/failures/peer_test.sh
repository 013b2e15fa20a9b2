#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Somebody else's daemon: a peer in Python (test/peer) that was written from doc/protocol alone,
# and uses no code of this project, is a rank of groups with real daemons. If a packet changes and
# the page does not, this story fails. Then the peer sends every kind of packet wrong in every
# field, and what is right and not true, while another group sums on the same daemons.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_switch.sh"

# The peer is slow, and whoever else runs here makes it slower: nobody shall take it for dead.
switch_make --transport.exchange_kib 4 --transport.source_ports 32 --timeouts.silence_ms 20000
peer() {
  local program=$1
  shift
  ip netns exec "$outsider" "$python" "$hostile/peer_$program.py" gw0 $(sockets 2) \
    "$@"
}

expect "groups of the peer and daemons, in every shape of ops" peer groups

step "a group sums all the time, and shall not notice anything"
background bystanders "$python" "$programs/sums.py" --until "$run_dir/enough" \
  --sizes 0,1,1000,100003 $(sockets 2)
eventually 30 grep -q running "$run_dir/bystanders.out" || fail "no sum got through"
pids=("${daemon_pids[@]}")
expect "every kind of packet wrong in every field is dropped by name" peer wrong
expect "what is right and not true ends its group by name" peer lies
for i in 0 1; do
  daemon_alive $i || fail "daemon $i, process ${pids[i]}, did not survive it"
done
touch "$run_dir/enough"
expect_ended "the other group's sums were right all the time" bystanders

expect "lost packets, aborts, calls that differ, byes too early" peer faults
step "daemon 1 was told to stop"
eventually 20 daemon_gone 1 || fail "daemon 1 does not leave"
wait "${daemon_pids[1]}" || fail "daemon 1 left with status $?"
expect_stop 0 TERM
