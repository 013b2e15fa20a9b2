#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Clients in C on two daemons all-reduce and check every element. A daemon that is killed, and one
# that is stopped, end the op on the other rank with an error that names rank 0.
. "$(dirname "$0")/../_init.sh"

# clients GROUP BYTES ITERATIONS: both ranks, as the background processes GROUP-RANK.
clients() {
  local rank
  mkdir "$run_dir/$1"
  for rank in 0 1; do
    background "$1-$rank" "$rank_client" "$(daemon_socket $rank)" "$run_dir/$1" $rank 2 "$@"
  done
}

# both_succeed GROUP BYTES ITERATIONS
both_succeed() {
  local rank
  clients "$@"
  for rank in 0 1; do expect_ended "rank $rank, $3 times $2 bytes" "$1-$rank"; done
}

# both_fail GROUP: and rank 1 says why.
both_fail() {
  local rank
  for rank in 0 1; do
    if ended "$1-$rank"; then fail "rank $rank succeeded without a daemon"; fi
  done
  expect_text "rank 0's error" GW_ "$run_dir/$1-0.out"
  expect_text "rank 1's error" "$2" "$run_dir/$1-1.out"
}

memif_ring_start 2 --timeouts.silence_ms $((1000 * timeout_multiplier)) --timeouts.drain_ms 200
both_succeed 1 4 50
both_succeed 2 1000000 20
both_succeed 3 33554432 2

step "endless ops, and daemon 0 is killed"
clients 4 4194304 1000000
eventually 20 test -e "$run_dir/4/joined" || fail "group 4 does not form"
daemon_stop 0 KILL || true
both_fail 4 'GW_ABORTED.*rank 0'
expect_text "rank 0's client misses its daemon" GW_UNAVAILABLE "$run_dir/4-0.out"

step "new daemons take their places, over what the dead one left"
expect_stop 1 TERM
memif_ring_start 2 --timeouts.drain_ms 200
both_succeed 5 1000000 5

step "endless ops, and daemon 0 is told to stop"
clients 6 4194304 1000000
eventually 20 test -e "$run_dir/6/joined" || fail "group 6 does not form"
expect_stop 0 TERM
both_fail 6 'GW_ABORTED.*rank 0 was stopped'
expect_stop 1 TERM
