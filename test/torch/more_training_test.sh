#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# FSDP1, ZeroRedundancyOptimizer, torch.compile, pipelining and DTensor's redistribution: beside
# Gloo, on two daemons of two processes each.
. "$(dirname "$0")/_torch.sh"

memif_ring_start 2 "${torch_daemon_flags[@]}"
for way in ${*:-fsdp1 zero compiled pipeline dtensor}; do
  job "$way" 2 2 -- "$repo_root/test/torch/training/more.py" "$way"
done
