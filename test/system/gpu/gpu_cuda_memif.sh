#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The story of gpu_emu_memif_test.sh on a real GPU, which all daemons share: scripts/gpu-check.sh
# runs it. Small ops of three daemons, one of which reduces on the CPU, go off the ring: direct, in
# two steps, and gathered in a group whose rank 0 wants that. And a client is killed in the middle
# of its ops, while another group goes on. With GRADWIRE_PTX, on the interpreter of test/ptx: the
# story gpu_ptx_memif.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_gpu_cuda.sh"
. "$(dirname "$0")/../_bystanders.sh"

ways=('mapped launch mapped' 'copy launch copy by' 'mapped persistent mapped')
# An interpreter under a sanitizer takes longer than a client waits for an op of a persistent
# kernel; the test ptx-executor runs that one under sanitizers.
slow=0
[[ -z ${GRADWIRE_PTX:-} || ${GRADWIRE_SANITIZE:-none} == none ]] || slow=1
((!slow)) || ways=("${ways[0]}")
# An interpreter takes its time: it does all datatypes once, and small ops alone are interrupted.
some=()
few=()
victims=(6)
if [[ -n ${GRADWIRE_PTX:-} ]]; then
  some=(--datatypes bf16,fp32,int8)
  few=(--datatypes bf16,int32)
  victims=(4 --elements 65536)
fi
for way in "${ways[@]}"; do
  datatypes=("${some[@]}")
  [[ $way != "${ways[0]}" ]] || datatypes=()
  read -r staging kernel path <<<"$way"
  # The chunks are counted as the ring has them.
  memif_ring_start 2 --gpu.device gpu_cuda0 --gpu.staging "$staging" --gpu.kernel "$kernel" \
    --transport.direct_kib 0
  # Whether the copies go by mapping or by the copy engine is the machine's business.
  [[ $path != copy* ]] ||
    path=$(grep -aoE 'copy by (CPU mapping|copy engine)' "$(daemon_log 0)" | head -n 1)
  expect "sums on the GPU, $path, $kernel" "$python" "$programs/gpu_sums.py" \
    --backend cuda --path "$path" "${datatypes[@]}" $(sockets 2)
  for i in 0 1; do expect_stop "$i" TERM; done
  for i in 0 1; do
    [[ -z ${GRADWIRE_PTX:-} ]] || expect_text "daemon $i ran the kernels' PTX" \
      "PTX: .*: [1-9][0-9]* launches" "$(daemon_log "$i")"
  done
done

step "ops off the ring"
cuda_eal=("${daemon_eal[@]}")
for i in 0 1 2; do
  gpu=(--gpu.device gpu_cuda0 --gpu.staging mapped)
  [[ $i != 1 ]] || gpu=(--gpu.device gpu_cuda0 --gpu.staging copy)
  daemon_eal=("${cuda_eal[@]}")
  [[ $i != 2 ]] || { daemon_eal=() && gpu=(--transport.gathered_ranks 2); }
  memif_rank_start "$i" 3 "${gpu[@]}"
done
daemon_eal=("${cuda_eal[@]}")
for i in 0 1 2; do daemon_wait_ready "$i" || fail "daemon $i does not start"; done
# shellcheck disable=SC2046
expect "direct and two-step ops" "$python" "$programs/gpu_direct.py" \
  --backends cuda,cuda,cpu "${few[@]}" $(sockets 3)
# shellcheck disable=SC2046
expect "gathered ops" "$python" "$programs/gpu_direct.py" --shape gathered \
  --backends cpu,cuda,cuda "${few[@]}" "$(daemon_socket 2)" $(sockets 2)
for i in 0 1 2; do expect_stop "$i" TERM; done

if ((slow)); then
  note "with a sanitizer: launched kernels on mapped memory alone"
  exit 0
fi
step "a client is killed while another group sums"
memif_ring_start 2 --gpu.device gpu_cuda0 --gpu.staging mapped
kill_beside_bystanders "${victims[@]}"
