#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Sums whose elements travel as bf16 and int8, through real daemons as they are by default: 2 and 3
# ranks on memif links, several members a rank, awkward counts, apart and in place, beside ops
# without a format, while frames are lost. Every bit is compared with the reference. Calls that
# differ, a group that has no formats, and a daemon that is killed in the middle of an op.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_perf.sh"

all_of() {
  local ranks=$1 wire
  for wire in bf16 int8; do
    perf "$ranks" 1 --wire "$wire" --sizes 4,1020,1028,100004,3M --in-place
    perf "$ranks" 2 --wire "$wire" -o avg --sizes 4,100008,1M
    perf "$ranks" 2 --wire "$wire" --collective reduce-scatter --sizes 24,100008,1200K
    perf "$ranks" 1 --wire "$wire" --collective reduce --root 1 -o avg --sizes 4,100004,1M
  done
  perf "$ranks" 1 --wire int8 -d bf16 --sizes 2,100002,1M
}

for ranks in 2 3; do
  step "$ranks daemons"
  memif_ring_start "$ranks"
  all_of "$ranks"
  perf "$ranks" 1 --sizes 4,100004,3M
  # shellcheck disable=SC2046
  expect "formats" "$python" "$programs/formats.py" $(sockets "$ranks")
  # shellcheck disable=SC2046
  expect "formats of two members" "$python" "$programs/formats.py" --members 2 $(sockets "$ranks")
  for ((rank = 0; rank < ranks; rank++)); do
    if ((ranks == 2)); then
      expect_stop "$rank" TERM
    else
      "$gradwire_cli" inject --socket "$(daemon_socket $rank)" --drop 0.01 --duplicate 0.02 \
        --reorder 0.02 --corrupt 0.01 --seed $((rank + 7)) >/dev/null
    fi
  done
done

step "3 daemons that lose and repeat frames"
perf 3 1 --wire int8 --sizes 100004,3M
perf 3 1 --wire bf16 --collective reduce-scatter --in-place --sizes 1200K
for rank in 0 1 2; do expect_stop "$rank" TERM; done

step "a group that has no formats"
memif_rank_start 0 2 --transport.tiles never
memif_rank_start 1 2
daemon_wait_ready 0 && daemon_wait_ready 1
# shellcheck disable=SC2046
expect "refused" "$python" "$programs/formats.py" \
  --refused 'transport.tiles of rank 0'"'"'s daemon is "never"' $(sockets 2)
for rank in 0 1; do expect_stop "$rank" TERM; done

step "one daemon, where nothing travels"
memif_ring_start 1
# shellcheck disable=SC2046
expect "one rank" "$python" "$programs/formats.py" --members 2 $(sockets 1)
expect_stop 0 TERM

step "a daemon is killed in the middle of an op"
memif_ring_start 2 --timeouts.silence_ms $((1000 * timeout_multiplier))
# travelled: ops that did as int8 at daemon 0.
travelled() {
  "$gradwire_cli" status --json --socket "$(daemon_socket 0)" | "$python" -c '
import json, sys
groups = json.load(sys.stdin)["groups"]
print(sum(shard["counters"]["ops_int8"] for group in groups for shard in group["shards"]))'
}
moves() { (($(travelled) > 2)); }
mkdir "$run_dir/endless"
for rank in 0 1; do
  background "endless-$rank" "$gradwire_perf" --socket "$(daemon_socket "$rank")" --rank "$rank" \
    --nranks 2 --rendezvous "$run_dir/endless" --wire int8 --sizes 4M:1000000 --no-check
done
eventually 20 moves || fail "nothing travels as int8"
daemon_stop 1 KILL || true
for rank in 0 1; do
  if ended "endless-$rank"; then fail "rank $rank succeeded without a daemon"; fi
done
expect_text "rank 0's error" 'rank 1' "$run_dir/endless-0.out"
expect_stop 0 TERM
