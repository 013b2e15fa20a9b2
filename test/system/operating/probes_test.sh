#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# bpftrace attaches to the daemons' static probes and shows a ring step by step. There is no RDMA
# device here: the script of the bench's RDMA ring is only compiled for the bench's probes.
. "$(dirname "$0")/../_init.sh"

command -v bpftrace >/dev/null || skip "bpftrace is not installed (packages.debian, [observe])"
readelf -n "$gradwired" 2>/dev/null | grep -q 'Provider: gradwire' ||
  skip "the daemon was built without static probes (systemtap-sdt-dev)"
# Arguments lie in the frame then, and the kernel refuses what bpftrace 0.17 makes of several of
# those: "dereference of modified ctx ptr".
[[ ${GRADWIRE_SANITIZE:-none} == none ]] ||
  skip "bpftrace cannot read the probes' arguments in a build with sanitizers"
timeout 20 bpftrace -e 'BEGIN { exit(); }' >"$run_dir/try" 2>&1 ||
  skip "bpftrace does not work on this kernel: $(tail -n 1 "$run_dir/try")"

# 0.17 calls it -d, later versions --dry-run, besides a -d of another kind.
dry_run=-d
! bpftrace --help 2>&1 | grep -q -e --dry-run || dry_run=--dry-run
rdma_steps_fit() {
  bpftrace "$dry_run" "$repo_root/scripts/bpf/rdma-steps.bt" "$gradwire_perf" \
    >"$run_dir/rdma-steps" 2>&1 || return
  # 0.23 warns of a limit that kernels since 5.11 do not have, 0.27 of signs and of what can be
  # traced besides.
  ! grep WARNING "$run_dir/rdma-steps" | grep -v -e RLIMIT_MEMLOCK -e 'signed operands' \
    -e 'being cast to' -e 'expanded from' -e available_filter_functions
}
expect "rdma-steps.bt fits the probes of the bench" rdma_steps_fit

memif_ring_start 2
# job SIZE: all-reduces of that size, until it is ended.
job() {
  mkdir "$run_dir/job-$1"
  for rank in 0 1; do
    background "job-$1-$rank" "$gradwire_perf" --socket "$(daemon_socket $rank)" --rank $rank \
      --nranks 2 --rendezvous "$run_dir/job-$1" -b "$1" -e "$1" -n 1000000 -w 1
  done
}
job 1M

over() { [[ $(process_state "$1") == Z ]]; }
# interrupted PID: it ends of an interrupt. bpftrace drops one that comes while it attaches, so it
# gets another after 5 s; not sooner, since one that comes while it prints cuts that short.
interrupted() {
  for _ in {1..6}; do
    kill -INT "$1" 2>/dev/null || return 0
    ! eventually 5 over "$1" || return 0
  done
  return 1
}

# trace SCRIPT SECONDS: runs it on the daemons' binary, ends it as Ctrl-C does.
trace() {
  background "$1" bpftrace "$repo_root/scripts/bpf/$1.bt" "$gradwired"
  eventually 30 grep -q Attaching "$run_dir/$1.out" || fail "$1.bt: $(cat "$run_dir/$1.out")"
  sleep "$2"
  interrupted "${background[$1]}" || fail "$1.bt does not end when it is interrupted"
  ended "$1" || true
}
trace ring-steps 3
# Two ranks: a chunk goes each way in hop 0 and comes back as the sum in hop 1.
for step in '0, 1, 0' '1, 0, 0' '0, 1, 1' '1, 0, 1'; do
  expect_text "the latency of hop [$step]" "^@hop_us\[$step\]:" "$run_dir/ring-steps.out"
done
expect_text "how long a rank keeps a chunk" '^@kept_us\[0\]:' "$run_dir/ring-steps.out"
trace ops 2
expect_text "ops as they end" '^[0-9a-f]{18} +[0-9]+ +[01] +1048576 +[0-9]+' "$run_dir/ops.out"
kill -KILL "${background[job-1M-1]}"
ended job-1M-0 || true
job 64K
trace ring-steps 3
# An exchange: a chunk goes each way, and that is all.
for step in '0, 1, 0' '1, 0, 0'; do
  expect_text "the latency of hop [$step] of an exchange" "^@hop_us\[$step\]:" \
    "$run_dir/ring-steps.out"
done
if grep -E '^@hop_us\[(., ., 1|0, 0, 0|1, 1, 0)\]' "$run_dir/ring-steps.out"; then
  fail "an exchange has hops that it has not"
fi
kill -KILL "${background[job-64K-1]}"
