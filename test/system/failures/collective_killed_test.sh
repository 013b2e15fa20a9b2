#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank is killed with -9 in the middle of each collective: its client, and once its daemon. Every
# other rank is told, by an error that names it; the daemons that are left go on.
. "$(dirname "$0")/../_init.sh"

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

memif_ring_start 3
victim=0
for collective in reduce-scatter all-gather broadcast reduce barrier; do
  victim=$(((victim + 1) % 3))
  step "$collective, and rank $victim's client is killed"
  start_ranks "$collective" "$collective"
  kill -KILL "${background[$collective$victim]}"
  ended "$collective$victim" || true
  expect_told "$collective" "$collective" $victim
done
# shellcheck disable=SC2046
expect "the daemons go on" "$python" "$programs/sums.py" --sizes 100000 $(sockets 3)

step "all-gather, and rank 2's daemon is killed"
start_ranks daemon all-gather
daemon_stop 2 KILL || true
ended daemon2 || true
expect_told daemon all-gather 2
expect_stop 0 TERM
expect_stop 1 TERM
