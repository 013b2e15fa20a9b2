#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# PyTorch's own tests of torch.distributed, from the installed package, on three daemons. What ran,
# what was skipped or excluded, and why: $GRADWIRE_TORCH_RESULTS, by default in the build folder.
. "$(dirname "$0")/_torch.sh"

"$torch_python" -c 'import expecttest' 2>/dev/null ||
  skip "there is no expecttest beside PyTorch: scripts/test.sh --suites torch installs it"
job_seconds=${GRADWIRE_TORCH_SECONDS:-900}
memif_ring_start 3 "${torch_daemon_flags[@]}"
mkdir "$run_dir/results"
on_exit cp "$run_dir/results/results.txt" \
  "${GRADWIRE_TORCH_RESULTS:-$build_folder/torch-results.txt}"
job "PyTorch's tests" 1 1 1 -- "$repo_root/test/torch/distributed_test.py" "$run_dir/results" "$@"
grep -v '^passed' "$run_dir/results/results.txt" | sed 's/^/       /'
