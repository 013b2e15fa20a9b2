#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Calls made wrongly as well as rightly, beside Gloo, on one daemon and on two: sizes, lists, roots
# and types that do not fit, memory that several tensors share, callbacks that wait, the caller's
# modes, and the memory that is kept for copies. Then what daemons do not reduce themselves.
. "$(dirname "$0")/_torch.sh"

memif_ring_start 2 "${torch_daemon_flags[@]}" --limits.client_memory_mib 96
for program in calls ends; do
  job "$program, two daemons" 1 1 -- "$repo_root/test/torch/$program.py"
  job "$program, one daemon" 2 -- "$repo_root/test/torch/$program.py"
done
job "sparse tensors and int16" 2 1 -- "$repo_root/test/torch/kinds.py"
