#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Tests on the bases of PyTorch's own tests of FSDP and DTensor, which the installed package holds:
# four processes on two daemons, and three on two.
. "$(dirname "$0")/_torch.sh"

"$torch_python" -c 'import expecttest' 2>/dev/null ||
  skip "there is no expecttest beside PyTorch: scripts/test.sh --suites torch installs it"
job_seconds=300
memif_ring_start 2 "${torch_daemon_flags[@]}"
job "FSDP and DTensor on common_fsdp and common_dtensor" 2 2 -- \
  "$repo_root/test/torch/common.py" gradwire "$@"
job "DTensor, by processes that divide no size" 1 2 -- \
  "$repo_root/test/torch/common.py" gradwire "${1:-test_*redistribution*}"
