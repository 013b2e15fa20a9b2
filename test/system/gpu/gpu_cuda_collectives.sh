#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Every collective of three daemons whose gradients are the host's, two of which reduce on the real
# GPU that they share: scripts/gpu-check.sh runs it. What reduces does so there; what only moves,
# sends and receives among it, comes through. With GRADWIRE_PTX, on the interpreter of test/ptx: the
# story gpu_ptx_collectives.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_gpu_cuda.sh"

cuda_eal=("${daemon_eal[@]}")
for i in 0 1 2; do
  gpu=(--gpu.device gpu_cuda0 --gpu.staging mapped)
  [[ $i != 1 ]] || gpu=(--gpu.device gpu_cuda0 --gpu.staging mapped --gpu.kernel persistent)
  daemon_eal=("${cuda_eal[@]}")
  [[ $i != 2 ]] || { daemon_eal=() && gpu=(); }
  memif_rank_start "$i" 3 "${gpu[@]}"
done
for i in 0 1 2; do daemon_wait_ready "$i" || fail "daemon $i does not start"; done
# shellcheck disable=SC2046
expect "all-gather, reduce-scatter, broadcast, reduce and barrier" "$python" \
  "$programs/collectives.py" --datatypes bf16 $(sockets 3)
# shellcheck disable=SC2046
expect "of two members a rank" "$python" "$programs/collectives.py" --members 2 \
  --datatypes int32 $(sockets 3)
# shellcheck disable=SC2046
expect "sends, receives, all-to-alls, gathers and scatters" "$python" \
  "$programs/transfers.py" --places 1,0,2,0 $(sockets 3)
for i in 0 1; do
  "$python" "$programs/status.py" "$(daemon_socket "$i")" >"$run_dir/status"
  if grep -A 4 '"backend": "cpu' "$run_dir/status" | grep -q '"chunks_reduced": [1-9]'; then
    fail "the CPU of daemon $i reduced chunks"
  fi
  grep -A 4 '"backend": "cuda' "$run_dir/status" | grep -q '"chunks_reduced": [1-9]' ||
    fail "the GPU of daemon $i reduced nothing"
done
for i in 0 1 2; do expect_stop "$i" TERM; done
for i in 0 1; do
  expect_text "daemon $i's GPU is left with nothing allocated and nothing registered" \
    'closed: 0 allocations and 0 registrations left' "$(daemon_log "$i")"
done
