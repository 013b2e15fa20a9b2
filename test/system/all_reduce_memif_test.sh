#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two daemons on a memif link: their clients all-reduce and check every element; a daemon that is
# killed, and one that is stopped, end the op on the other rank with an error that names rank 0.
. "$(dirname "$0")/_daemons.sh"
need_hugepages 250

# clients GROUP BYTES ITERATIONS: both ranks; their texts are $DIR/GROUP-RANK.text.
clients() {
  mkdir "$DIR/$1"
  for rank in 0 1; do
    "$RANK_CLIENT" "$DIR/$rank.sock" "$DIR/$1" $rank 2 "$1" "$2" "$3" \
      >"$DIR/$1-$rank.text" 2>&1 &
    CLIENT[rank]=$!
  done
}
declare -a CLIENT=()
joined() { [ -e "$DIR/$1/joined" ]; }
both_succeed() {
  for rank in 0 1; do
    wait "${CLIENT[rank]}" || fail "rank $rank: $(cat "$DIR/$1-$rank.text")"
  done
}

# The client end of a memif link starts only where its server end is there.
both_start() {
  launch 0 server --timeouts.silence_ms 1000
  ready 0
  launch 1 client --timeouts.silence_ms 1000
  ready 1
}

both_start
clients 1 4 50
both_succeed 1
clients 2 1000000 20
both_succeed 2
clients 3 33554432 2
both_succeed 3

# Endless ops, and a daemon dies: the other rank says whom it missed.
clients 4 4194304 1000000
wait_for 20 joined 4 || fail "group 4 does not form"
kill -KILL "${DAEMON[0]}"
wait "${DAEMON[0]}" 2>/dev/null
unset "DAEMON[0]"
for rank in 0 1; do wait "${CLIENT[rank]}" && fail "rank $rank succeeded without a daemon"; done
grep -q GW_UNAVAILABLE "$DIR/4-0.text" || fail "rank 0: $(cat "$DIR/4-0.text")"
grep -q 'GW_ABORTED.*rank 0' "$DIR/4-1.text" || fail "rank 1: $(cat "$DIR/4-1.text")"

# New ones take their places, over what the dead one left: its control socket and lock. The socket
# of the memif link is the driver's, which does not replace a dead server's.
stop 1 TERM || fail "exit status $? after SIGTERM"
rm -f "$DIR/memif.sock"
both_start
clients 5 1000000 5
both_succeed 5

# One is told to stop in the middle of ops.
clients 6 4194304 1000000
wait_for 20 joined 6 || fail "group 6 does not form"
stop 0 TERM || fail "exit status $? after SIGTERM"
for rank in 0 1; do wait "${CLIENT[rank]}" && fail "rank $rank succeeded without a daemon"; done
grep -q 'GW_ABORTED.*rank 0 was stopped' "$DIR/6-1.text" || fail "rank 1: $(cat "$DIR/6-1.text")"
stop 1 TERM || fail "exit status $? after SIGTERM"
echo ok
