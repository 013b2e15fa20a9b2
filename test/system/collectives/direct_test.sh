#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Small ops in one hop, or gathered in two: four daemons in two racks, so some ranks that are no
# neighbors on the ring share a segment, and others reach each other by a router. Bits are the
# ring's, for all datatypes and redops; a group whose rank 0 has transport.direct_kib = 0 goes round
# the ring beside one that does not. A router that gets another MAC address stops nothing. Who
# differs, who dies, who cannot be reached and whose path is too narrow is named. On memif links
# four ranks have no way to each other, so their ops go round the ring, and the log says why.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_fabric.sh"

py() { "$python" "$programs/$1.py" "${@:2}"; }
# in_order HOST...: the daemons' sockets as ranks.
in_order() {
  local host
  for host in "$@"; do daemon_socket "$host" && printf ' '; done
}
# direct_of HOST: ops that its lane 0 did in one hop, of all groups.
direct_of() {
  "$gradwire_cli" counters --socket "$(daemon_socket "$1")" |
    awk '$1 == "lane.0.transport.ops_direct" {n = $2} END {print n + 0}'
}

fabric_make 2 1500
for host in 0 1; do fabric_daemon "$host"; done
fabric_flags=(--transport.gathered_ranks 2)
fabric_daemon 2
fabric_flags=(--transport.direct_kib 0)
fabric_daemon 3
fabric_flags=()

# isolate on|off: hosts 0 and 1 share a segment, and hear nothing of each other.
isolate() {
  local host
  for host in 0 1; do
    ip -n "$(fabric_leaf 0)" link set "h$host" type bridge_slave isolated "$1" 2>/dev/null ||
      skip "this kernel's bridges isolate no ports"
  done
}
isolate on
step "two ranks that are no neighbors cannot reach each other: no group forms, by name"
# shellcheck disable=SC2046
if py sums --sizes 16 --join-timeout 4 $(in_order 0 2 1 3) >"$run_dir/apart" 2>&1; then
  fail "a group formed of which two ranks cannot reach each other"
fi
expect_text "the error names the rank" \
  'rank 0 member 0: .*rank 2 \(10\.81\.0\.2\) does not answer ARP' "$run_dir/apart"
isolate off

# shellcheck disable=SC2046
expect "one member a rank: off the ring by the routers" py direct $(in_order 0 1 2 3)
expect_text "the log says that small ops are direct" 'formed: .* direct ops up to 64 KiB' \
  "$(daemon_log 0)"
expect_text "and that another group's are not" 'formed: .* direct ops up to 0 KiB' "$(daemon_log 0)"
# shellcheck disable=SC2046
expect "three members a rank: off the ring in the rack" py direct --members 3 \
  --datatypes fp16,bf16,int32 --counts 1,17,700 $(in_order 0 2 1 3)

step "a group whose rank 0 gathers small ops of more than two ranks"
# shellcheck disable=SC2046
expect "gathered all-reduces" py direct --shape gathered --datatypes fp32,bf16,int32 \
  $(in_order 2 0 1 3)
# shellcheck disable=SC2046
expect "and of three members a rank" py direct --shape gathered --members 3 --datatypes fp16,int8 \
  --counts 1,17,300 $(in_order 2 0 1 3)
# shellcheck disable=SC2046
expect "all-gathers, barriers and all others" py collectives --members 2 --datatypes bf16 \
  $(in_order 2 3 0 1)
"$gradwire_cli" counters --socket "$(daemon_socket 1)" >"$run_dir/counters"
expect_text "the counters say so" 'lane.0.transport.ops_gathered [1-9]' "$run_dir/counters"
expect_text "and the log" 'formed: .* gathered up to 256 KiB' "$(daemon_log 1)"
# shellcheck disable=SC2046
expect "sends, all-to-alls and their like, to whom and by which way ever" \
  py transfers --places 3,0,0,1,2,1 $(in_order 0 2 1 3)
# shellcheck disable=SC2046
expect "calls that differ are named" py mismatch --all-reduces $(in_order 0 1 2 3)

# start_ranks NAME: a client of each rank, which sums 64 bytes without pause until it is told of an
# error.
start_ranks() {
  local name=$1 rank
  mkdir "$run_dir/$name"
  for rank in 0 1 2 3; do
    # shellcheck disable=SC2046
    background "$name$rank" "$python" "$programs/until_error.py" --elements 16 \
      --out "$run_dir/$name.error$rank" --rank $rank \
      --meet "$run_dir/$name" $(in_order "${ranks[@]}")
  done
  for rank in 0 1 2 3; do
    eventually 30 grep -q running "$run_dir/$name$rank.out" ||
      { cat "$run_dir/$name$rank.out" && fail "rank $rank: no sum got through"; }
  done
}
# expect_told NAME VICTIM: the ranks but the victim end with an error that names it. How soon is
# printed; the bound is ten times what it takes, since cores are shared here.
expect_told() {
  local rank ms
  for rank in 0 1 2 3; do
    ((rank != $2)) || continue
    expect_ended "rank $rank is told" "$1$rank"
    sed 's/^/       /' "$run_dir/$1.error$rank"
    grep -q ABORTED "$run_dir/$1.error$rank" || fail "rank $rank did not get ABORTED"
    grep -q "rank $2" "$run_dir/$1.error$rank" || fail "rank $rank's error does not name rank $2"
    ms=$((($(awk '{print $2}' "$run_dir/$1.error$rank") - killed_ns) / 1000000))
    note "after $ms ms"
    ((ms <= 15000)) || fail "rank $rank was told after $ms ms"
  done
}

ranks=(0 1 2 3)
start_ranks client
before=$(direct_of 0)
moves() { (($(direct_of 0) > before + 10)); }
eventually 10 moves || fail "the sums are not direct"
killed_ns=$(date +%s%N)
kill -KILL "${background[client1]}"
step "rank 1's client is killed"
ended client1 || true
expect_told client 1

start_ranks daemon
killed_ns=$(date +%s%N)
daemon_stop 2 KILL || true
step "rank 2's daemon is killed"
ended daemon2 || true
expect_told daemon 2

step "the killed daemon comes back with another MAC address, and takes part again"
rm -f "$(daemon_socket 2)"
ip -n "$(fabric_host 2)" link set gw0 down
ip -n "$(fabric_host 2)" link set gw0 address 02:81:01:00:77:01 up
fabric_daemon 2
# shellcheck disable=SC2046
expect "sums" py direct --datatypes fp32 --counts 1,16 $(in_order 0 1 2 3)

step "the router of rack 0 comes back with another MAC address, in the middle of direct ops"
# shellcheck disable=SC2046
background moves "$python" "$programs/progress.py" --size 16 \
  --until "$run_dir/moves.end" --bound-ms 10000 $(in_order 0 1 2 3)
eventually 60 grep -q running "$run_dir/moves.out" ||
  { cat "$run_dir/moves.out" && fail "the ops do not start"; }
fabric_leaf_mac 0 02:81:00:00:01:07 0.1
before=$(direct_of 0)
eventually 10 moves || fail "direct ops do not go on"
touch "$run_dir/moves.end"
expect_ended "every op was done" moves

step "the path from rank 0 to rank 2 carries less than the ring's paths: named, and nobody hangs"
leaf=$(fabric_leaf 0)
ip -n "$leaf" rule add from 10.81.0.1 to 10.81.1.1 lookup 77
ip -n "$leaf" route add default via 10.82.0.2 dev up0 mtu lock 600 table 77
# shellcheck disable=SC2046
if py sums --sizes 16,2000 $(in_order 0 1 2 3) >"$run_dir/narrow" 2>&1; then
  fail "an op was done whose packets do not pass"
fi
grep -q '^16 elements' "$run_dir/narrow" || fail "small packets do not pass either"
expect_text "the error names the rank and the MTU" \
  'rank (0|2) was silent .*it answers, but .* MTU' "$run_dir/narrow"
expect_text "and the router told so" 'the router 10\.81\.0\.254 says .* 600 bytes' "$(daemon_log 0)"
ip -n "$leaf" rule del from 10.81.0.1 to 10.81.1.1 lookup 77

step "two ranks that are no neighbors lose their way to each other in the middle of ops"
ranks=(0 2 1 3)
start_ranks cut
killed_ns=$(date +%s%N)
isolate on
for rank in 0 1 2 3; do
  expect_ended "rank $rank is told" "cut$rank"
  sed 's/^/       /' "$run_dir/cut.error$rank"
  grep -Eq 'rank (0|2) was silent .*seen by rank (0|2)' "$run_dir/cut.error$rank" ||
    fail "rank $rank's error does not name ranks 0 and 2"
done
isolate off
for host in 0 1 2 3; do expect_stop "$host" TERM; done

step "four daemons on memif links: each has a port to its neighbors alone"
for host in 0 1 2 3; do daemon_netns[host]=; done
memif_ring_start 4
# shellcheck disable=SC2046
expect "sums" py sums --sizes 1,16,1000 $(sockets 4)
why='no op is direct, though rank 0 has .*direct_kib = 64: ranks 0 .* and 2 .* have no ports'
expect_text "the log says why they go round the ring" "warn.*$why" "$(daemon_log 0)"
(($(direct_of 0) == 0)) || fail "ops were direct"
for host in 0 1 2 3; do expect_stop "$host" TERM; done
