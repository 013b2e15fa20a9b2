#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Random calls of every function of torch.distributed, right and wrong, on gradwire and on Gloo: the
# same bytes in all memory, guards around each tensor included, and the same answers; or an error on
# both; or an entry of differences.py. 1,000 calls in each part of the job.
#   GRADWIRE_CALLS  how many instead; with it all four jobs are run: two and three processes, on one
#                   daemon and on two. 100,000 take about an hour each on two cores:
#                   GRADWIRE_CALLS=100000 GRADWIRE_SEED=7 test/torch/difference_test.sh
#   GRADWIRE_SEED   what the calls are drawn from; 1 if it is not set
# A call that differs is printed with the arguments that make it alone again.
. "$(dirname "$0")/_torch.sh"

calls=${GRADWIRE_CALLS:-1000}
job_seconds=$((600 + calls / 4))
# Gloo says more than its errors do.
export TORCH_CPP_LOG_LEVEL=FATAL
compare() {
  local what=$1
  shift
  job "$what" "$@" -- "$repo_root/test/torch/difference/differ.py" --calls "$calls" \
    --seed "${GRADWIRE_SEED:-1}" --limit $((2 * timeout_multiplier))
}

memif_ring_start 2 "${torch_daemon_flags[@]}"
compare "one daemon" 2
compare "two daemons" 2 1
# It found a fault once, beyond the calls that are made each time.
job "call 7769 of seed 20261127" 2 -- "$repo_root/test/torch/difference/differ.py" --seed 20261127 \
  --only 7769 --limit $((2 * timeout_multiplier))
[[ -n ${GRADWIRE_CALLS:-} ]] || exit 0
compare "two daemons" 1 1
compare "one daemon" 3
