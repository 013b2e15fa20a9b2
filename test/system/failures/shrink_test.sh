#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The demo's training job on a ring of three daemons. In the middle one rank is lost: its training
# process and its daemon are killed with -9. The two that are left form a smaller group at once,
# repeat the step from the parameters that they kept, and finish with the same bits.
. "$(dirname "$0")/../_init.sh"

"$python" -c 'import torch.distributed as d; raise SystemExit(not d.is_available())' 2>/dev/null ||
  skip "there is no PyTorch with torch.distributed"
[[ -d /usr/share/common-licenses ]] || skip "there are no texts in /usr/share/common-licenses"
export PYTHONPATH=$PYTHONPATH:$repo_root/scripts/demo GLOO_SOCKET_IFNAME=lo WORLD_SIZE=3

memif_ring_start 3
mkdir "$run_dir/job"
for rank in 0 1 2; do
  RANK=$rank GRADWIRE_SOCKET=$(daemon_socket "$rank") background "train-$rank" "$python" \
    "$repo_root/scripts/demo/train.py" --backend gradwire --out "$run_dir/job" --steps 12 \
    --batch 2 --say-every 1 --shrink --store "$run_dir/store"
done
said() { grep -q "step *$1 of 12" "$run_dir"/train-*.out; }
step "three train; at step 4 rank 0, with the first process of the job, is lost"
eventually 60 said 4 || { cat "$run_dir"/train-*.out && fail "the job does not get to step 4"; }
kill -9 "${background[train-0]}" "${daemon_pids[0]}"
for rank in 1 2; do expect_ended "process $rank finishes" "train-$rank"; done
expect_text "the job says whom it lost" 'lost in step .*rank 0' "$run_dir/train-1.out"
expect_text "and goes on" '2 of 3 go on from step' "$run_dir/train-1.out"
expect_text "to its end" 'step *12 of 12' "$run_dir/train-1.out"
grep -E 'lost in step|go on' "$run_dir/train-1.out"
expect "all steps, and bit-equal weights" "$python" - "$run_dir/job" <<'PYTHON'
import os, sys, torch
first, second = (torch.load(os.path.join(sys.argv[1], f"gradwire-{r}.pt")) for r in (1, 2))
assert first["world"] == second["world"] == 2, (first["world"], second["world"])
for result in (first, second):
    assert len(result["losses"]) == 12, result["losses"]
    assert sum(result["losses"][-3:]) < sum(result["losses"][:3]), result["losses"]
assert torch.equal(first["weights"].view(torch.int32), second["weights"].view(torch.int32))
PYTHON
