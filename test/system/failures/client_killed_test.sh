#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A client is killed with -9 in the middle of its ops. Its group aborts, naming its rank; another
# group on the same daemons goes on; the daemon frees the memory that the client had.
. "$(dirname "$0")/../_init.sh"

memif_ring_start 2
free_before=$(hugepages_read free_hugepages)

step "one group sums all the time, as two processes that shall not notice anything"
"$python" "$programs/until_error.py" --seconds 6 --out "$run_dir/bystanders" \
  $(sockets 2) >"$run_dir/bystanders.log" 2>&1 &
bystanders=$!
on_exit end_process "$bystanders"
eventually 30 grep -q running "$run_dir/bystanders.log" ||
  { cat "$run_dir/bystanders.log" && fail "no sum got through"; }

step "a second group, of one process for each rank"
mkdir "$run_dir/meet"
for rank in 0 1; do
  "$python" "$programs/until_error.py" --out "$run_dir/errors$rank" --rank $rank \
    --meet "$run_dir/meet" $(sockets 2) >"$run_dir/victim$rank.log" 2>&1 &
  victims[rank]=$!
  on_exit end_process $!
done
for rank in 0 1; do
  eventually 30 grep -q running "$run_dir/victim$rank.log" ||
    { cat "$run_dir/victim$rank.log" && fail "rank $rank: no sum got through"; }
done

step "rank 1's client is killed"
kill -KILL "${victims[1]}"
status=0
wait "${victims[0]}" || status=$?
((status == 0)) || { cat "$run_dir/victim0.log" && fail "rank 0's client ended with $status"; }
cat "$run_dir/errors0"
grep -q 'ABORTED' "$run_dir/errors0" || fail "rank 0's client did not get ABORTED"
grep -q 'rank 1' "$run_dir/errors0" || fail "rank 0's error does not name rank 1"

step "the bystanders finish without an error"
status=0
wait "$bystanders" || status=$?
((status == 0)) || { cat "$run_dir/bystanders.log" && fail "the bystanders ended with $status"; }
[[ ! -s $run_dir/bystanders ]] ||
  { cat "$run_dir/bystanders" && fail "the bystanders got an error"; }

# Clients of these daemons alone use hugepages between the two readings, unless somebody else's
# programs do: hence the daemons' own word too.
step "the daemons freed what the clients had"
freed() {
  "$python" "$programs/status.py" "$(daemon_socket 0)" --expect-no-clients &&
    "$python" "$programs/status.py" "$(daemon_socket 1)" --expect-no-clients
}
eventually 10 freed || { freed || true; fail "a daemon still has a client, a group or memory"; }
note "free hugepages: $free_before before, $(hugepages_read free_hugepages) after"
expect "and sum for new ones" "$python" "$programs/sums.py" --sizes 100000 $(sockets 2)
