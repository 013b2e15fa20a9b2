#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Gradients in GPU memory, on a real GPU that two daemons and their clients share:
# scripts/gpu-check.sh runs it. Bits of all datatypes through GPU memory that the daemon made, a
# client that is killed while another group goes on, and all-reduces of torch's CUDA tensors beside
# Gloo's, by daemons whose gradient memory is the GPU's and by such whose is the host's. $1: where
# the figures go, as JSON; those of the host's memory go to ...-host.json. With GRADWIRE_PTX, all
# but torch, on the interpreter of test/ptx.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_gpu_cuda.sh"
. "$(dirname "$0")/../_bystanders.sh"

figures=${1:-$run_dir/gradients.json}
gpu=(--gpu.device gpu_cuda0 --gpu.client_memory gpu)
# The chunks are counted as the ring has them.
memif_ring_start 2 "${gpu[@]}" --gpu.staging mapped --transport.direct_kib 0
expect "sums through the daemon's GPU memory" "$python" "$programs/gpu_sums.py" \
  --backend cuda --path mapped --copied $(sockets 2)
step "a client with GPU memory open is killed while another group sums"
victims=(6)
[[ -z ${GRADWIRE_PTX:-} ]] || victims=(4 --elements 65536)  # an interpreter takes its time
kill_beside_bystanders "${victims[@]}"
for i in 0 1; do
  eventually 10 "$python" "$programs/status.py" "$(daemon_socket "$i")" \
    --expect-no-clients || fail "daemon $i still has a client, a group or memory"
done
for i in 0 1; do expect_stop "$i" TERM; done
for i in 0 1; do
  expect_text "daemon $i's GPU is left with nothing allocated and nothing registered" \
    'closed: 0 allocations and 0 registrations left' "$(daemon_log "$i")"
done

export PYTHONPATH=$PYTHONPATH:$repo_root/scripts/compare
if [[ -n ${GRADWIRE_PTX:-} ]]; then
  "$python" -c 'import torch' 2>/dev/null ||
    { note "torch, with which its program would be tried on the CPU, is not here" && exit 0; }
  note "torch's tensors need a GPU: on the interpreter only the program is tried, on the CPU"
  memories=(host)
  flags=(--mib 1 --device cpu)
  gpu=()
else
  "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null ||
    skip "torch, which the rest of this is for, is not here or finds no GPU"
  memories=(gpu host)
  flags=()
  gpu=(--gpu.device gpu_cuda0 --gpu.staging auto)
fi
for memory in "${memories[@]}"; do
  step "torch's tensors, gradient memory: $memory"
  memif_ring_start 2 "${gpu[@]}" --gpu.client_memory "$memory"
  mkdir "$run_dir/torch-$memory"
  json=(--json "$figures")
  [[ $memory != host ]] || json=(--host --json "${figures%.json}-host.json")
  for rank in 0 1; do
    background "torch-$memory$rank" "$python" "$repo_root/test/gpu/cuda_gradients.py" \
      --rank "$rank" --meet "$run_dir/torch-$memory" "${json[@]}" "${flags[@]}" $(sockets 2)
  done
  for rank in 0 1; do
    expect_ended "all-reduces of CUDA tensors, rank $rank" "torch-$memory$rank"
  done
  for rank in 0 1; do cat "$run_dir/torch-$memory$rank.out"; done
  "$python" "$programs/status.py" "$(daemon_socket 0)" >"$run_dir/status"
  if [[ -z ${GRADWIRE_PTX:-} ]] &&
    grep -A 4 '"backend": "cpu' "$run_dir/status" | grep -q '"chunks_reduced": [1-9]'; then
    fail "the CPU reduced chunks"
  fi
  for i in 0 1; do expect_stop "$i" TERM; done
done
