#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Sends, receives, all-to-alls, gathers and scatters through real daemons: 1 to 3 ranks, processes
# unevenly at them, each kind of memory, in any order, in groups for transfers alone, too; 768
# receives that wait while the group's ops go on. Calls that differ are named; so is who is killed
# in the middle of each. Four ranks on memif links have no way from each to each: refused, by name.
. "$(dirname "$0")/../_init.sh"

transfers() { "$python" "$programs/transfers.py" "$@"; }

# start_ranks NAME COLLECTIVE: a process for each of the 3 ranks, all in their first ops or later.
start_ranks() {
  local name=$1 rank
  mkdir "$run_dir/$name"
  for rank in 0 1 2; do
    # shellcheck disable=SC2046
    background "$name$rank" "$python" "$programs/until_error.py" \
      --collective "$2" --out "$run_dir/$name.error$rank" --rank $rank --meet "$run_dir/$name" \
      $(sockets 3)
  done
  for rank in 0 1 2; do
    eventually 30 grep -q running "$run_dir/$name$rank.out" ||
      { cat "$run_dir/$name$rank.out" && fail "rank $rank: no $2 got through"; }
  done
}

# expect_told NAME COLLECTIVE VICTIM: the ranks but the victim end with an error that names it.
expect_told() {
  local rank
  for rank in 0 1 2; do
    ((rank != $3)) || continue
    expect_ended "rank $rank, in the middle of $2, is told" "$1$rank"
    sed 's/^/       /' "$run_dir/$1.error$rank"
    grep -q ABORTED "$run_dir/$1.error$rank" || fail "rank $rank did not get ABORTED"
    grep -q "rank $3" "$run_dir/$1.error$rank" || fail "rank $rank's error does not name rank $3"
  done
}

step "3 daemons"
memif_ring_start 3
# shellcheck disable=SC2046
expect "a process each" transfers $(sockets 3)
# shellcheck disable=SC2046
expect "uneven, in any order" transfers --places 2,0,0,1,0 $(sockets 3)
# shellcheck disable=SC2046
expect "memory that is not shared" transfers --copied --places 1,0,2,0 $(sockets 3)
# shellcheck disable=SC2046
expect "two daemons" transfers --places 1,0 $(sockets 2)
# shellcheck disable=SC2046
expect "two daemons, in groups for transfers alone" transfers --alone --places 1,0 $(sockets 2)
# shellcheck disable=SC2046
expect "the same, uneven, in any order" transfers --alone --places 1,0,0,1,0 $(sockets 2)
# shellcheck disable=SC2046
expect "the same, calls that differ, and who is late" \
  transfers --alone --mismatch --places 0,1,1 $(sockets 2)
# shellcheck disable=SC2046
expect "one daemon alone" transfers --places 0,0,0 $(sockets 1)
# shellcheck disable=SC2046
expect "calls that differ, and who is late" transfers --mismatch $(sockets 3)
# shellcheck disable=SC2046
expect "the same at one daemon" transfers --mismatch --places 0,0 $(sockets 1)
"$gradwire_cli" counters --socket "$(daemon_socket 0)" >"$run_dir/counters"
expect_text "transfers are counted" 'lane\.0\.transport\.transfer_ends_done +[1-9]' \
  "$run_dir/counters"

victim=0
for collective in send-recv all-to-all gather scatter; do
  victim=$(((victim + 1) % 3))
  step "$collective, and rank $victim's client is killed"
  start_ranks "$collective" "$collective"
  kill -KILL "${background[$collective$victim]}"
  ended "$collective$victim" || true
  expect_told "$collective" "$collective" $victim
done
# shellcheck disable=SC2046
expect "the daemons go on" transfers $(sockets 3)

step "all-to-all, and rank 2's daemon is killed"
start_ranks daemon all-to-all
daemon_stop 2 KILL || true
ended daemon2 || true
expect_told daemon all-to-all 2
expect_stop 0 TERM
expect_stop 1 TERM

step "4 daemons, of which two have no way to each other"
memif_ring_start 4
# shellcheck disable=SC2046
expect "refused by name" transfers --refused 'ranks? 0 .*' $(sockets 4)
for rank in 0 1 2 3; do expect_stop $rank TERM; done

step "3 daemons that lose, double and reorder packets"
memif_ring_start 3 --faults.drop 0.01 --faults.duplicate 0.01 --faults.reorder 0.02
# shellcheck disable=SC2046
expect "uneven, in any order" transfers --places 2,0,0,1,0 $(sockets 3)
# shellcheck disable=SC2046
expect "in groups for transfers alone" transfers --alone --places 1,0,0 $(sockets 2)
"$gradwire_cli" counters --socket "$(daemon_socket 0)" >"$run_dir/counters"
expect_text "what was lost was pulled again" 'lane\.0\.transport\.pieces_pulled_again +[1-9]' \
  "$run_dir/counters"
for rank in 0 1 2; do expect_stop $rank TERM; done
