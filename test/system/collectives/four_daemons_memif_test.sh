#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Four daemons in a ring of four memif links: each reaches its two neighbors through different
# ports, and those opposite through nobody but its neighbors. Then a ring of three, in which each
# reaches all, and one sums all-reduces in two steps for all. Ranks that wait for each op stand
# beside ranks that have eight under way, or everything: no rank's depth may hold up another's op.
. "$(dirname "$0")/../_init.sh"

memif_ring_start 4
expect "sums around the ring" "$python" "$programs/sums.py" --twice \
  --sizes 0,1,3,4,5,1000,4463,300001 $(sockets 4)
expect "four ranks, three with eight ops under way and one with one" "$python" \
  "$programs/depths.py" --depths 8,8,8,1 --counts 50000,120000 $(sockets 4)
expect "the rank that waits is the first" "$python" \
  "$programs/depths.py" --depths 1,8,2,8 --counts 80000 $(sockets 4)

for i in 0 1 2 3; do expect_stop "$i" TERM; done
flags=(--transport.direct_kib 1 --transport.two_step_kib 64)
memif_rank_start 0 3 "${flags[@]}"
memif_rank_start 1 3 "${flags[@]}" --transport.two_step_owner true
memif_rank_start 2 3 "${flags[@]}"
for i in 0 1 2; do daemon_wait_ready "$i" || fail "daemon $i does not start"; done
for depths in 154,8,1 1,154,2; do
  # shellcheck disable=SC2046
  expect "all collectives by ranks of depths $depths, of which the last comes late" "$python" \
    "$programs/depths.py" --mixed --ops 154 --depths "$depths" $(sockets 3)
done
for i in 0 1 2; do
  expect_text "daemon $i says that one rank sums" \
    'formed: .* up to 64 KiB, summed by 1 of 3 ranks' "$(daemon_log "$i")"
  "$gradwire_cli" counters --socket "$(daemon_socket "$i")" >"$run_dir/counters"
  expect_text "and counts such ops" 'lane.0.transport.ops_two_step [1-9]' "$run_dir/counters"
done
expect "three ranks, two with eight ops under way and one with one" "$python" \
  "$programs/depths.py" --depths 8,8,1 --counts 50000,120000 $(sockets 3)
