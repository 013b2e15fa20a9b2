#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A host that has no process in a group sums for it: two daemons with a process each, and a third,
# joined to both by memif, that python -m gradwire.fold lends to the group. Bits are those of the
# two alone, from 64 bytes to 16 MiB, whichever way an op goes. When the processes leave the command
# ends. Who ends it, or kills its daemon, ends the group, by name. A group without ops in two steps
# is refused.
. "$(dirname "$0")/../_init.sh"

flags=(--transport.exchange_kib 0 --transport.direct_kib 4 --transport.two_step_kib 256)
memif_ring_start 3 "${flags[@]}"

py() { "$python" "$programs/$1.py" "${@:2}"; }
# fold NAME: the third daemon sums, for processes that meet at $run_dir/NAME.
fold() {
  background "$1" "$python" -m gradwire.fold --store "$run_dir/$1" --rank 2 --nranks 3 --epoch 1 \
    --timeout 30 --socket "$(daemon_socket 2)"
}
# folded HOST: ops in two steps that its lane 0 did, of all groups.
folded() {
  "$gradwire_cli" counters --socket "$(daemon_socket "$1")" |
    awk '$1 == "lane.0.transport.ops_two_step" {n = $2} END {print n + 0}'
}

fold sums
# shellcheck disable=SC2046
expect "sums, of every datatype and redop" py folding --meet "$run_dir/sums" $(sockets 2)
expect_ended "the command ends when the processes have left" sums
expect_text "and says so" "the group's processes have left" "$run_dir/sums.out"
(($(folded 2) > 40)) || fail "the third daemon summed $(folded 2) ops"
(($(folded 0) >= $(folded 2))) || fail "ranks with members did fewer ops in two steps than it"
expect_text "the log says who sums" 'formed: rank 0 of 3, 1 members, .*summed by 1 of 3 ranks' \
  "$(daemon_log 0)"
expect_text "and that it has no members" 'formed: rank 2 of 3, 0 members' "$(daemon_log 2)"

# shellcheck disable=SC2046
expect "processes in an order of their own, by daemons and not by ranks" \
  py folding --uneven $(sockets 3)

# expect_told NAME PATTERN: the processes have an error that matches.
expect_told() {
  expect_ended "the processes are told" "$1.sums"
  sed 's/^/       /' "$run_dir/$1.error"
  grep -Eq "$2" "$run_dir/$1.error" || fail "the error does not match '$2'"
}
start_sums() {
  fold "$1"
  # shellcheck disable=SC2046
  background "$1.sums" "$python" "$programs/folding.py" --meet "$run_dir/$1" \
    --until-error "$run_dir/$1.error" $(sockets 2)
  eventually 30 grep -q running "$run_dir/$1.sums.out" ||
    { cat "$run_dir/$1.sums.out" "$run_dir/$1.out" && fail "no sum got through"; }
}

step "the command is killed in the middle of sums"
start_sums killed
kill -KILL "${background[killed]}"
ended killed || true
expect_told killed 'rank 2.*(client|died|gone)'

step "a process leaves the group by an error: the command says which"
start_sums died
kill -KILL "${background[died.sums]}"
ended died.sums || true
status=0
ended died || status=$?
((status == 1)) || { cat "$run_dir/died.out" && fail "the command ended with status $status"; }
expect_text "by name" 'gradwire.fold: .*rank [01]' "$run_dir/died.out"

step "its daemon is killed in the middle of sums"
start_sums daemon
daemon_stop 2 KILL || true
expect_told daemon 'rank 2 was silent'
status=0
ended daemon || status=$?
((status == 1)) || { cat "$run_dir/daemon.out" && fail "the command ended with status $status"; }

step "a group without ops in two steps has nothing for it to do: refused, by name"
for i in 0 1; do expect_stop "$i" TERM; done
rm -f "$(daemon_socket 2)"
memif_ring_start 3 "${flags[@]}" --transport.two_step_kib 0
fold refused
# shellcheck disable=SC2046
if py folding --meet "$run_dir/refused" --join-timeout 5 $(sockets 2) >"$run_dir/refused.log" 2>&1
then
  fail "a group formed in which a rank has neither members nor anything to sum"
fi
expect_text "the error says why" 'transport.two_step_kib = 0' "$run_dir/refused.log"
ended refused || true
for i in 0 1 2; do expect_stop "$i" TERM; done
