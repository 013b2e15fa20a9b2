#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Every collective of the backend against Gloo's, on one daemon and on two, by type and redop, in
# groups of some of the processes, many at once, and with a mistake in a call.
. "$(dirname "$0")/_torch.sh"

memif_ring_start 2 "${torch_daemon_flags[@]}"
job "two daemons" 1 1 -- "$repo_root/test/torch/backend.py"
job "two daemons, two processes at each" 2 2 -- "$repo_root/test/torch/backend.py"
job "two daemons, one process at one and two at the other" 1 2 -- \
  "$repo_root/test/torch/backend.py"
job "one daemon" 3 -- "$repo_root/test/torch/backend.py"
