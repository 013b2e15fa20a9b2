#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What a user of the PyTorch backend sees beside results: sequence numbers, split groups, and
# coalescing, a late process and an abort by name, and torch's own checks of calls (DETAIL). What
# thousands of groups leave behind, and whom a monitored barrier names.
. "$(dirname "$0")/_torch.sh"

memif_ring_start 2 "${torch_daemon_flags[@]}"
job "two daemons, three processes" 1 2 -- "$repo_root/test/torch/details.py"
job "DETAIL" 1 1 -- "$repo_root/test/torch/details.py" detail
job_seconds=240
job "a thousand groups" 2 1 -- "$repo_root/test/torch/members/many_groups.py" 1000
job "monitored barriers" 2 1 -- "$repo_root/test/torch/members/monitored.py"
