#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A trainer that is killed, and a daemon that is: every process that is left gets an error that
# names whom it lost, within bounds, and can end its process group.
. "$(dirname "$0")/_torch.sh"

# told RANK PATTERN: that process's error matches, and the process ended well.
told() {
  local status=0
  ended "job-$1" || status=$?
  sed 's/^/       /' "$run_dir/job-$1.out"
  ((status == 0)) || fail "process $1 ended with status $status"
  expect_text "process $1 is told" "^rank $1 after [0-9]\.[0-9] s: rank $1: allreduce.*$2" \
    "$run_dir/job-$1.out"
  expect_text "and can end" '^ended$' "$run_dir/job-$1.out"
}

memif_ring_start 2 "${torch_daemon_flags[@]}"
step "the last of four processes is killed"
job_start 2 2 -- "$repo_root/test/torch/killed.py" 50
for rank in 0 1 2; do
  told "$rank" 'rank 1 died: member 1 .*1 has processes 2, 3'
done
ended job-3 || true

step "the daemon of two processes is killed"
job_start 2 2 -- "$repo_root/test/torch/killed.py"
eventually 60 grep -q begun "$run_dir/job-0.out" || fail "the job does not begin"
daemon_stop 1 KILL || true
for rank in 0 1; do told "$rank" 'rank 1 .*(silent|went away|not reach).*1 has processes 2, 3'; done
for rank in 2 3; do told "$rank" 'the daemon at .* went away'; done
