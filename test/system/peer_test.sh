#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Somebody else's daemon: a peer in Python (test/peer) that was written from doc/protocol.md alone,
# and uses no code of this project, is a rank of groups with real daemons. If a packet changes and
# the page does not, this story fails.
. "$(dirname "$0")/_init.sh"
. "$(dirname "$0")/_switch.sh"

# The peer is slow, and whoever else runs here makes it slower: nobody shall take it for dead.
switch_make --transport.exchange_kib 4 --timeouts.silence_ms 20000
peer() {
  local program=$1
  shift
  ip netns exec "$outsider" "$python" "$repo_root/test/system/peer_$program.py" gw0 $(sockets 2)
}

expect "groups of the peer and daemons, in every shape of ops" peer groups
expect "lost packets, aborts, calls that differ, byes too early" peer faults
step "daemon 1 was told to stop"
eventually 20 daemon_gone 1 || fail "daemon 1 does not leave"
wait "${daemon_pids[1]}" || fail "daemon 1 left with status $?"
expect_stop 0 TERM
