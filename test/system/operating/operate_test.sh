#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The operator looks at two daemons while a job runs, while one of its processes hangs, and drains
# one of them. Every verb answers as text and as JSON.
. "$(dirname "$0")/../_init.sh"

gradwire() { "$gradwire_cli" "$1" --socket "$(daemon_socket "${of:-0}")" "${@:2}"; }
# With sanitizers and beside other stories the text of a trace takes seconds.
patience=(--timeout 60)
trace() { gradwire trace "${patience[@]}" "$@"; }
check() { "$python" "$programs/operate.py" "$@"; }

memif_ring_start 2
expect_text "an idle daemon has no group" '^no group' <(gradwire groups)
expect_text "and no op" '^no op is in progress' <(gradwire ops)

mkdir "$run_dir/job"
for rank in 0 1; do
  background "job-$rank" "$gradwire_perf" --socket "$(daemon_socket $rank)" --rank $rank \
    --nranks 2 --rendezvous "$run_dir/job" -b 1M -e 1M -n 1000000 -w 1
done
busy() { gradwire groups --json | grep -q '"done_op_seq": [1-9][0-9]'; }
eventually 20 busy || fail "the job does not start"

# On a machine that stands still for half a second nothing moves in it.
moving() {
  gradwire top --once --interval 0.5 --json >"$run_dir/top.json" && check moving "$run_dir/top.json"
}
expect "top sees it move" eventually 5 moving
expect_text "top, as text" '^LANE +LOAD' <(gradwire top --once --interval 0.2)
gradwire counters --json >"$run_dir/counters.json"
expect "counters" check counted "$run_dir/counters.json"
expect_text "groups, as text" 'formed' <(gradwire groups)
expect_text "ports, as text" 'net_memif0 +net_memif' <(gradwire ports)
for verb in status groups ops ports counters trace top; do
  look=()
  [[ $verb != top ]] || look=(--interval 0.05 --once)
  gradwire $verb --json "${patience[@]}" "${look[@]}" >"$run_dir/verb.json"
  expect "$verb --json is JSON" "$python" -m json.tool "$run_dir/verb.json" /dev/null
done
trace --perfetto "$run_dir/trace.json"
expect "the trace opens in Perfetto" check perfetto "$run_dir/trace.json"
expect_text "trace, as text" '1 +done' <(trace | sed 's/  0 / 1 /')
trace --last 5 >"$run_dir/trace.out"
expect_text "and no more than asked for" '^[0-9]+ older events are not shown' "$run_dir/trace.out"
(($(wc -l <"$run_dir/trace.out") == 7)) || fail "trace --last 5 does not show 5 events"
status=0
"$gradwire_cli" statsu >"$run_dir/statsu" 2>&1 || status=$?
((status == 2)) || fail "gradwire statsu: status $status"
expect_text "a verb that is none is named" '"statsu": did you mean "status"' "$run_dir/statsu"

kill -STOP "${background[job-1]}"
waiting() { gradwire ops --json >"$run_dir/ops.json" && check waiting "$run_dir/ops.json" 1; }
eventually 20 waiting || { waiting || true; fail "rank 0 does not wait for rank 1"; }
expect_text "ops, as text" 'rank 1' <(gradwire ops)
late() { gradwire groups --json >"$run_dir/groups.json" && check late "$run_dir/groups.json" 1; }
eventually 20 late || { late || true; fail "rank 1 was not late"; }
expect_text "top says so" 'LATE RANK' <(gradwire top --once --interval 0.2)

status=0
gradwire drain --timeout 0.5 >"$run_dir/drain.out" 2>&1 || status=$?
((status == 1)) || fail "draining with an op under way: status $status"
expect_text "what is under way is waited for" 'still in progress' "$run_dir/drain.out"
expect_text "the daemon says that it drains" '^gradwired .* draining' <(gradwire status)
kill -CONT "${background[job-1]}"
# The job's group may be gone with its process before the answer counts it.
expect_text "drained" '^drained: no op is in progress; [01] groups' \
  <(gradwire drain "${patience[@]}")
ended job-0 && fail "the job goes on in a drained daemon"
expect_text "the job is told why" 'is draining and starts no new op' "$run_dir/job-0.out"
end_process "${background[job-1]}"

# The other daemon's group ends, and a new one cannot be formed until the daemon resumes.
mkdir "$run_dir/refused"
status=0
"$gradwire_perf" --socket "$(daemon_socket 0)" --rank 0 --nranks 1 --rendezvous "$run_dir/refused" \
  -b 64 -e 64 -n 1 >"$run_dir/refused.out" 2>&1 || status=$?
((status != 0)) || fail "a group was formed in a drained daemon"
expect_text "no new group" 'draining and forms no new group' "$run_dir/refused.out"
expect_text "resumed" '^running' <(gradwire drain --resume)
expect "a group again" "$python" "$programs/sums.py" --sizes 1,1000 $(sockets 2)

# Of two members of one rank one is late: the other is told of it, by its number.
"$python" "$programs/members.py" "$(daemon_socket 0)" >"$run_dir/members.out"
node=$(gradwire status --json | "$python" -c 'import json, sys
print(json.load(sys.stdin)["daemon"]["numa_node"])')
expect_text "clients and the status agree on the node" "^node: $node\$" "$run_dir/members.out"
expect_text "who is late with an op is named" '^op: .*member 1 of this rank .*has not posted it' \
  "$run_dir/members.out"
expect_text "and who is late with leaving" '^leave: TIMED_OUT.*waits for: member 1 to leave' \
  "$run_dir/members.out"
expect_text "who closes its client did not die" \
  '^close: .*rank 0 left the group: member 1 .* closed its client' "$run_dir/members.out"

status=0
setpriv --reuid 65534 --clear-groups --regid 65534 "$gradwire_cli" status \
  --socket "$(daemon_socket 0)" >"$run_dir/denied.out" 2>&1 || status=$?
((status == 1)) || fail "a stranger reads the status: status $status"
expect_text "a stranger is refused" 'may not connect' "$run_dir/denied.out"
