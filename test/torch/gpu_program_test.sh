#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The program that scripts/gpu-check.sh runs on CUDA tensors, on the CPU, so that it does not fail
# for reasons of its own when a GPU is at hand. Streams do nothing here.
. "$(dirname "$0")/_torch.sh"

export PYTHONPATH=$PYTHONPATH:$repo_root/test/gpu
figures=$run_dir/figures.json
memif_ring_start 2 "${torch_daemon_flags[@]}"
job "two daemons" 1 1 -- "$repo_root/test/gpu/torch_backend.py" "two processes" --device cpu \
  --calls all_reduce send_recv --json "$figures"
job "two daemons, one process at one and two at the other" 1 2 -- \
  "$repo_root/test/gpu/torch_backend.py" "three processes" --device cpu --json "$figures"
expect "both are in the figures" "$torch_python" - "$figures" <<'PYTHON'
import json, sys
found = json.load(open(sys.argv[1]))
assert set(found) == {"two processes", "three processes"}, set(found)
assert all(job["failed"] is None and job["fsdp2"] < 1e-5 for job in found.values()), found
assert len(found["two processes"]["calls"]) == 8, found
PYTHON
