#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Sums that travel as bf16 and int8, by 4 ranks in two networks that a router joins: a rank's client
# is killed in the middle of each collective, and once its daemon. Then by 2 ranks and a host that
# only sums, whose daemon is killed. Whoever is left is told by an error that names the rank; the
# daemons go on, and take the next group.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_fabric.sh"

silence=(--timeouts.silence_ms $((1500 * timeout_multiplier)))

# start_ranks NAME OPTION...: a process for each of the 4 ranks, all in their first ops or later.
start_ranks() {
  local name=$1 rank
  shift
  mkdir "$run_dir/$name"
  for rank in 0 1 2 3; do
    # shellcheck disable=SC2046
    background "$name-$rank" "$python" "$programs/until_error.py" --elements 1048576 "$@" \
      --out "$run_dir/$name.error$rank" --rank $rank --meet "$run_dir/$name" $(sockets 4)
  done
  for rank in 0 1 2 3; do
    eventually 30 grep -q running "$run_dir/$name-$rank.out" ||
      { cat "$run_dir/$name-$rank.out" && fail "rank $rank: nothing of $name got through"; }
  done
}

# expect_told NAME VICTIM: the ranks but the victim end with an error that names it.
expect_told() {
  local rank
  for rank in 0 1 2 3; do
    ((rank != $2)) || continue
    expect_ended "rank $rank, in the middle of $1, is told" "$1-$rank"
    sed 's/^/       /' "$run_dir/$1.error$rank"
    grep -q ABORTED "$run_dir/$1.error$rank" || fail "rank $rank did not get ABORTED"
    grep -q "rank $2" "$run_dir/$1.error$rank" || fail "rank $rank's error does not name rank $2"
  done
}

fabric_make 2 1500
fabric_flags=("${silence[@]}")
for host in 0 1 2 3; do fabric_daemon "$host"; done
victim=0
for wire in bf16 int8; do
  for collective in all-reduce reduce-scatter reduce; do
    victim=$(((victim + 1) % 4))
    name=$collective-$wire
    step "$collective as $wire, and rank $victim's client is killed"
    start_ranks "$name" --collective "$collective" --wire "$wire"
    kill -KILL "${background[$name-$victim]}"
    ended "$name-$victim" || true
    expect_told "$name" $victim
  done
  name=daemon-$wire
  step "all-reduce as $wire, and rank 2's daemon is killed"
  start_ranks "$name" --wire "$wire"
  daemon_stop 2 KILL || true
  ended "$name-2" || true
  expect_told "$name" 2
  fabric_daemon 2
done
# shellcheck disable=SC2046
expect "the daemons go on" "$python" "$programs/formats.py" $(sockets 4)
for host in 0 1 2 3; do expect_stop "$host" TERM; done

step "2 ranks and a host that only sums"
for host in 0 1 2 3; do rm -f "$(daemon_socket "$host")"; done
memif_ring_start 3 "${silence[@]}" --transport.direct_kib 4 --transport.two_step_kib 8
for wire in bf16 int8; do
  background "fold-$wire" "$python" -m gradwire.fold --store "$run_dir/fold-$wire" --rank 2 \
    --nranks 3 --epoch 1 --timeout 30 --socket "$(daemon_socket 2)"
  # shellcheck disable=SC2046
  background "sums-$wire" "$python" "$programs/folding.py" --meet "$run_dir/fold-$wire" \
    --wire "$wire" --count 4194304 --until-error "$run_dir/sums-$wire.error" $(sockets 2)
  eventually 30 grep -q running "$run_dir/sums-$wire.out" || fail "no sum got through"
  daemon_stop 2 KILL || true
  expect_ended "the processes are told, in the middle of a sum as $wire" "sums-$wire"
  expect_text "by name" 'rank 2 was silent' "$run_dir/sums-$wire.error"
  if ended "fold-$wire"; then fail "the command succeeded without its daemon"; fi
  memif_rank_start 2 3 "${silence[@]}" --transport.direct_kib 4 --transport.two_step_kib 8
  daemon_wait_ready 2 || fail "daemon 2 does not start again"
done
for rank in 0 1 2; do expect_stop "$rank" TERM; done
