#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two daemons over memif whose ports lose, repeat, reorder, delay and damage frames on purpose, one
# by its configuration and one by `gradwire inject`: every sum has the reference's bits, and the
# status says what was done and what was sent again. Then the faults are cleared.
. "$(dirname "$0")/../_init.sh"

faults=(--drop 0.01 --duplicate 0.02 --reorder 0.02 --corrupt 0.01 --delay 0.005 --delay-us 300)
inject() {
  local socket
  socket=$(daemon_socket "$1")
  shift
  "$gradwire_cli" inject --socket "$socket" "$@"
}

memif_rank_start 0 2 --faults.seed 7 --faults.drop 0.01 --faults.duplicate 0.02 \
  --faults.reorder 0.02 --faults.corrupt 0.01 --faults.delay 0.005 --faults.delay_us 300
memif_rank_start 1 2
daemon_wait_ready 0 && daemon_wait_ready 1
expect_text "the daemon warns" 'warn.*FAULT INJECTION on port net_memif0: drop 0.01' \
  "$(daemon_log 0)"
if grep -q 'FAULT INJECTION' "$(daemon_log 1)"; then fail "daemon 1 has faults from nowhere"; fi

step "faults that cannot be are refused"
! inject 1 --port net_nothing --drop 0.1 >"$run_dir/refused" 2>&1 || fail "a port from nowhere"
expect_text "the ports that there are" 'net_memif0' "$run_dir/refused"
! inject 1 --drop 1.5 >"$run_dir/refused" 2>&1 || fail "a probability of 1.5 was taken"

expect "faults are set at run time" inject 1 --port net_memif0 "${faults[@]}" --seed 8
expect_text "the daemon warns" 'warn.*FAULT INJECTION on port net_memif0: drop 0.01' \
  "$(daemon_log 1)"
expect "every bit is right, and the counters say what was done" \
  "$python" "$programs/faults.py" --faulty $(sockets 2)
"$gradwire_cli" status --socket "$(daemon_socket 1)" >"$run_dir/status"
expect_text "the status shouts" '^FAULTS INJECTED on port net_memif0: drop 0.01' "$run_dir/status"

expect "faults are cleared on daemon 0" inject 0 --clear
expect "faults are cleared on daemon 1" inject 1 --clear
expect "nothing is lost any more, and nothing sent again" \
  "$python" "$programs/faults.py" $(sockets 2)
expect_stop 1 TERM
expect_stop 0 TERM
