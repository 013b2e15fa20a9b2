#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ops by tiles through real daemons: all-reduces, reduce-scatters and all-gathers of 2 and 3 ranks
# on memif links and of 4 on segments of 1,500 bytes that a router joins; several members a rank,
# odd counts, apart and in place; while frames are lost; and a daemon and a client that are killed
# in the middle of one. On memif links four ranks have no way to each other: the log says why none
# goes so. With "auto" the cost model chooses. A daemon that has no process in a group sums for two
# that have: every datatype and redop has its bits, and when it is killed in the middle of an op the
# processes are told by name.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_fabric.sh"
. "$(dirname "$0")/../_perf.sh"

# Nothing is direct, gathered, an exchange or in two steps: what can goes by tiles.
tiles=(--transport.tiles always --transport.tile_scratch_kib 1024 --transport.direct_kib 0
  --transport.exchange_kib 0)

# by_tiles DAEMON: ops that went by tiles, of all of its lanes.
by_tiles() {
  "$gradwire_cli" status --json --socket "$(daemon_socket "$1")" | "$python" -c '
import json, sys
groups = json.load(sys.stdin)["groups"]
print(sum(shard["counters"]["ops_tiles"] for group in groups for shard in group["shards"]))'
}

# counted_by DAEMON COUNTER: of its lane 0, also of groups that have ended.
counted_by() {
  "$gradwire_cli" counters --socket "$(daemon_socket "$1")" |
    awk -v name="lane.0.transport.$2" '$1 == name {n = $2} END {print n + 0}'
}

# endless GROUP: clients of two ranks that sum 4 MiB until they are stopped.
endless() {
  local rank
  mkdir "$run_dir/$1"
  for rank in 0 1; do
    background "$1-$rank" "$rank_client" "$(daemon_socket "$rank")" "$run_dir/$1" "$rank" 2 "$1" \
      4194304 1000000
  done
  eventually 20 test -e "$run_dir/$1/joined" || fail "group $1 does not form"
  eventually 20 moves 0 || fail "nothing of group $1 goes by tiles"
}
moves() { (($(by_tiles "$1") > 2)); }

# all_of RANKS: every collective, and larger ops. Most of what daemon 0 did went by tiles.
all_of() {
  # shellcheck disable=SC2046
  expect "every collective" "$python" "$programs/collectives.py" $(sockets "$1")
  # shellcheck disable=SC2046
  expect "two members" "$python" "$programs/collectives.py" --members 2 --datatypes fp64,int32 \
    $(sockets "$1")
  perf "$1" 1 --collective all-reduce --sizes 4,100004,3M --in-place
  perf "$1" 2 --collective reduce-scatter -o avg --sizes 12,100008,1M
  perf "$1" 1 --collective all-gather -d bf16 --sizes 12,100008,1M --in-place
  expect_text "the daemon says so" 'info group .*: larger all-reduces.* go by tiles' \
    "$(daemon_log 0)"
}

for ranks in 2 3; do
  step "$ranks daemons"
  memif_ring_start "$ranks" "${tiles[@]}"
  all_of "$ranks"
  if ((ranks == 3)); then
    step "3 daemons that lose and repeat frames"
    for rank in 0 1 2; do
      "$gradwire_cli" inject --socket "$(daemon_socket $rank)" --drop 0.01 --duplicate 0.02 \
        --reorder 0.02 --corrupt 0.01 --seed $((rank + 7)) >/dev/null
    done
    perf 3 1 --collective all-reduce -d fp16 --sizes 100004,3M
    perf 3 1 --collective reduce-scatter --in-place --sizes 1M
  fi
  for ((rank = 0; rank < ranks; rank++)); do expect_stop "$rank" TERM; done
done

step "4 daemons of which not all reach each other"
memif_ring_start 4 "${tiles[@]}"
perf 4 1 --sizes 1M
expect_text "the log says why" \
  'warn.*no op without a wire format goes by tiles.*have no ports that lead to each other' \
  "$(daemon_log 0)"
for rank in 0 1 2 3; do expect_stop "$rank" TERM; done

step "4 daemons in two networks"
fabric_make 2 1500
fabric_flags=("${tiles[@]}")
for host in 0 1 2 3; do fabric_daemon "$host"; done
all_of 4
for host in 0 1 2 3; do expect_stop "$host" TERM; done

# ops_by_tiles HOP_NS: of daemon 0, where the model chooses, a hop takes so long, and all ports have
# a rate.
ops_by_tiles() {
  fabric_flags=("${tiles[@]}" --transport.tiles auto --transport.hop_ns "$1")
  for host in 0 1 2 3; do fabric_daemon "$host" "rate_gbps = 100"; done
  perf 4 1 --sizes 64,1M
  expect_text "the daemon says so" 'info group .* go by tiles, if they take less time so' \
    "$(daemon_log 0)"
  chosen=$(counted_by 0 ops_tiles)
  for host in 0 1 2 3; do expect_stop "$host" TERM; done
}

step "4 daemons that choose by what takes less time"
ops_by_tiles 1000000000
((chosen > 2)) || fail "five hops of 1 s take less time than six, and $chosen ops took them"
ops_by_tiles 1
((chosen == 0)) || fail "$chosen ops took more copies in place of hops of 1 ns"

step "rank 0's transport.tiles counts"
memif_rank_start 0 2
memif_rank_start 1 2 --transport.tiles always
daemon_wait_ready 0 && daemon_wait_ready 1
perf 2 1 --sizes 1M
if grep -Eq 'larger all-reduces.* go by tiles$' "$(daemon_log 1)"; then
  fail "rank 1's transport.tiles counted"
fi
for rank in 0 1; do expect_stop "$rank" TERM; done

step "a client is killed in the middle of an op"
memif_ring_start 2 "${tiles[@]}" --timeouts.silence_ms $((1000 * timeout_multiplier))
endless 1
kill -KILL "${background[1-1]}"
ended 1-1 || true
if ended 1-0; then fail "rank 0 succeeded without rank 1's client"; fi
expect_text "rank 0's error" GW_ABORTED "$run_dir/1-0.out"

step "a daemon is killed in the middle of an op"
endless 2
daemon_stop 1 KILL || true
for rank in 0 1; do
  if ended "2-$rank"; then fail "rank $rank succeeded without a daemon"; fi
done
expect_text "rank 0's error" 'GW_ABORTED.*rank 1' "$run_dir/2-0.out"
expect_stop 0 TERM

step "a host that only sums, beside two"
rm -f "$(daemon_socket 1)"
# Such a group has ops in two steps, too: these are small.
memif_ring_start 3 "${tiles[@]}" --transport.direct_kib 4 --transport.two_step_kib 8 \
  --timeouts.silence_ms $((1000 * timeout_multiplier))
fold() {
  background "$1" "$python" -m gradwire.fold --store "$run_dir/$1" --rank 2 --nranks 3 --epoch 1 \
    --timeout 30 --socket "$(daemon_socket 2)"
}
fold sums
# shellcheck disable=SC2046
expect "sums, of every datatype and redop" "$python" "$programs/folding.py" \
  --meet "$run_dir/sums" --sizes 16,1000,100004,4194304 $(sockets 2)
expect_ended "the command ends when the processes have left" sums
(($(counted_by 2 ops_tiles) > 40)) || fail "it summed $(counted_by 2 ops_tiles) ops by tiles"
(($(counted_by 2 ops_two_step) > 0)) || fail "it summed no op in two steps"
(($(counted_by 2 tile_pieces_sent) > 1000)) || fail "it sent no results"
expect_text "the log says how much" 'go by tiles; this rank sums 33.3 % of an all-reduce' \
  "$(daemon_log 2)"

step "gradwire-perf with such a host"
for options in '--sizes 100004,3M' '--wire int8 --sizes 100004,3M -o avg'; do
  before=$(counted_by 2 ops_tiles)
  name=perf-fold$perf_runs
  background "$name" "$python" -m gradwire.fold --prefix gradwire-perf --rank 2 \
    --nranks 3 --store "$run_dir/meet$((perf_runs + 1))" --timeout 30 --socket "$(daemon_socket 2)"
  # shellcheck disable=SC2086
  perf 2 1 --folding-ranks 1 $options
  expect_ended "the host is released" "$name"
  (($(counted_by 2 ops_tiles) > before)) || fail "it summed nothing of $options"
done

# shellcheck disable=SC2046
expect "processes in an order of their own, two of them at one daemon" \
  "$python" "$programs/folding.py" --uneven $(sockets 3)

step "its daemon is killed in the middle of an op"
fold killed
# shellcheck disable=SC2046
background killed.sums "$python" "$programs/folding.py" --meet "$run_dir/killed" --count 4194304 \
  --until-error "$run_dir/killed.error" $(sockets 2)
eventually 30 grep -q running "$run_dir/killed.sums.out" || fail "no sum got through"
daemon_stop 2 KILL || true
expect_ended "the processes are told" killed.sums
expect_text "by name" 'rank 2 was silent' "$run_dir/killed.error"
if ended killed; then fail "the command succeeded without its daemon"; fi
for rank in 0 1; do expect_stop "$rank" TERM; done
