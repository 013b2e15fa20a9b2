#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A job that loses a process shrinks its group and goes on.
. "$(dirname "$0")/_torch.sh"

memif_ring_start 2 "${torch_daemon_flags[@]}"
step "the last of four processes is killed, three go on"
job_start 2 2 -- "$repo_root/test/torch/shrunk.py"
for rank in 0 1 2; do
  ended "job-$rank" || { tail -n 25 "$run_dir/job-$rank.out" && fail "process $rank"; }
  expect_text "process $rank is told" \
    "^rank $rank: rank $rank: allreduce.*rank 1 died.*1 has processes 2, 3" "$run_dir/job-$rank.out"
  expect_text "and goes on" '^ended with 3$' "$run_dir/job-$rank.out"
done
ended job-3 || true
