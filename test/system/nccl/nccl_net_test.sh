#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# NCCL's network plug-in through two real daemons on a memif link, called as NCCL calls it by a
# program that plays NCCL (test/nccl/README.md) and checks every byte: several communicators,
# channels and processes at once, CollNet, aborts, a peer killed or gone early, packets lost. A
# daemon is killed and started again: what was under way fails, and new jobs go on. Nothing is left
# behind.
. "$(dirname "$0")/../_init.sh"

# Packet buffers for more groups than the other stories have: each process has one with each other,
# for a moment two.
daemon_memory_mib=400

# play ARGUMENT...: processes 0 and 2 are at daemon 0, 1 and 3 at daemon 1.
play() {
  local rank environment=()
  for rank in 0 1 2 3; do
    environment+=(--environment "$rank:GRADWIRE_SOCKET=$(daemon_socket $((rank % 2)))")
  done
  "$nccl_player" "$nccl_net" "${environment[@]}" --environment 0:GRADWIRE_NCCL_ADDRESS=127.0.0.1 \
    --setup-patience $((20 * timeout_multiplier)) --patience $((20 * timeout_multiplier)) \
    --limit $((120 * timeout_multiplier)) "$@"
}
# nothing_left: neither clients nor groups nor memory at any daemon.
nothing_left() {
  "$python" "$programs/status.py" "$(daemon_socket 0)" --expect-no-clients &&
    "$python" "$programs/status.py" "$(daemon_socket 1)" --expect-no-clients
}

expect_nothing_left() {
  eventually 10 nothing_left && return
  nothing_left || true
  fail "a daemon still has a client, a group or memory"
}

step "no daemon yet"
play -v --processes 2 --seed 1 >"$run_dir/refused" 2>&1 && fail "init() succeeded"
expect_text "refused by name" 'NET/gradwire: not used: no daemon listens at .*gw[01]\.sock' \
  "$run_dir/refused"

memif_ring_start 2 --limits.groups 48
# While a link is made for one connection, calls for another may meet a lock of the client library:
# 20 did at most. If each message waited once there would be more than a thousand.
expect "anything, calls that wait counted" play --seed 1 --seeds 4 --waits-max 400 --megabytes 24
expect "one process each, 32 deep" play --processes 2 --seed 11 --depth 32 --megabytes 24
expect "as NCCL 2.20 has it, several jobs" play --highest-version 8 --rounds 3 --seed 21 \
  --megabytes 12
expect "messages of 4 MiB" play --processes 2 --communicators 1 --channels 2 --bytes 4194304 \
  --seed 31 --abort never
expect "communicators aborted" play --processes 3 --communicators 3 --abort always --seed 41 \
  --seeds 2 --megabytes 12
expect "a peer is killed" play --kill always --seed 51 --seeds 3 --megabytes 12
# With sanitizers a seed takes seconds of processor time.
ends=20
[[ ${GRADWIRE_SANITIZE:-none} == none ]] || ends=6
expect "processes end without a close" play --exit draw --seed 121 --seeds "$ends" --megabytes 12
expect "daemons sum for CollNet" play --collnet --seed 91 --seeds 2 --megabytes 12 --waits-max 400
expect "as NCCL 2.20 has it" play --collnet-only --communicators 2 --highest-version 8 --seed 101
expect "a peer of CollNet is killed" play --collnet --communicators 1 --kill always --seed 111 \
  --seeds 2 --megabytes 12
expect_nothing_left

step "a daemon is killed"
echo "${daemon_pids[0]}" >"$run_dir/0.pid"
echo "${daemon_pids[1]}" >"$run_dir/1.pid"
# shellcheck disable=SC2016
play --processes 2 --seed 61 --kill always --kill-by "kill -9 \$(cat $run_dir/\$RANK.pid)" ||
  fail "its death was not told, or told to others"
killed=0
daemon_alive 0 && killed=1
daemon_alive $((1 - killed)) || fail "the other daemon has gone too"
memif_rank_start $killed 2 --limits.groups 48
daemon_wait_ready $killed
# The log says so only if it came up after the daemon looked first.
link_is_up() {
  "$gradwire_cli" status --json --socket "$(daemon_socket $killed)" | grep -q '"up": *true'
}
eventually 10 link_is_up || fail "the link does not come up"
expect "new jobs go on" play --processes 2 --seed 71 --megabytes 12
expect_stop 0 TERM
expect_stop 1 TERM

step "packets are lost, doubled and reordered"
memif_ring_start 2 --limits.groups 48 --faults.drop 0.01 --faults.duplicate 0.01 \
  --faults.reorder 0.02
expect "every byte comes" play --collnet --seed 81 --seeds 2 --abort never --megabytes 12
expect_nothing_left
expect_stop 0 TERM
expect_stop 1 TERM
