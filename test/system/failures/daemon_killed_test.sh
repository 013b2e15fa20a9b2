#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A daemon is killed with -9 in the middle of an op. Its own client has an error at once (in 10 s at
# most, since cores are shared here); the other ranks' clients have one that names the rank that is
# gone, and their daemons go on.
. "$(dirname "$0")/../_init.sh"

memif_ring_start 3
step "clients of all three sum until they are told of an error"
"$python" "$programs/until_error.py" --out "$run_dir/errors" $(sockets 3) \
  >"$run_dir/until_error.log" 2>&1 &
client=$!
on_exit end_process "$client"
eventually 30 grep -q running "$run_dir/until_error.log" ||
  { cat "$run_dir/until_error.log" && fail "no sum got through"; }

kill -KILL "${daemon_pids[2]}"
killed_ns=$(date +%s%N)
step "daemon 2 is killed"
status=0
wait "$client" || status=$?
((status == 0)) || { cat "$run_dir/until_error.log" && fail "the clients ended with $status"; }
cat "$run_dir/errors"

# A line a rank: RANK WHEN_NS CODE TEXT
code_of() { awk -v r="$1" '$1 == r {print $3}' "$run_dir/errors"; }
[[ $(code_of 2) == UNAVAILABLE ]] || fail "rank 2's client got $(code_of 2), not UNAVAILABLE"
waited_ms=$((($(awk '$1 == 2 {print $2}' "$run_dir/errors") - killed_ns) / 1000000))
((waited_ms <= 10000)) || fail "rank 2's client waited $waited_ms ms"
note "rank 2's client was told after $waited_ms ms"
for rank in 0 1; do
  [[ $(code_of $rank) == ABORTED ]] || fail "rank $rank's client got $(code_of $rank)"
  awk -v r=$rank '$1 == r' "$run_dir/errors" | grep -q 'rank 2' ||
    fail "rank $rank's error does not name rank 2"
  expect "daemon $rank goes on" daemon_alive $rank
done

step "the killed daemon comes back, and a new group sums"
wait "${daemon_pids[2]}" 2>/dev/null || true
rm -f "$(daemon_socket 2)"
memif_rank_start 2 3
daemon_wait_ready 2 || fail "daemon 2 does not start again"
expect "sums" "$python" "$programs/sums.py" --sizes 1,100000 $(sockets 3)
