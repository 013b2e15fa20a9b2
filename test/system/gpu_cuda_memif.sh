#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The story of gpu_emu_memif_test.sh on a real GPU, which both daemons share: scripts/gpu-check.sh
# runs it. And a client that is killed in the middle of its ops, while another group goes on.
. "$(dirname "$0")/_init.sh"
. "$(dirname "$0")/_bystanders.sh"

gpu_cuda=${GRADWIRE_GPU_CUDA:-$build_folder/drivers/gpu/cuda/librte_gpu_cuda.so}
[[ -f $gpu_cuda ]] || skip "this build has no drivers"
"$python" -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null ||
  skip "there is no libcuda.so.1, so no GPU"

daemon_eal=(-d "$gpu_cuda" --vdev gpu_cuda0,id=0)
for way in 'mapped launch mapped' 'copy launch copy by' 'mapped persistent mapped'; do
  read -r staging kernel path <<<"$way"
  memif_ring_start 2 --gpu.device gpu_cuda0 --gpu.staging "$staging" --gpu.kernel "$kernel"
  # Whether the copies go by mapping or by the copy engine is the machine's business.
  [[ $path != copy* ]] ||
    path=$(grep -aoE 'copy by (CPU mapping|copy engine)' "$(daemon_log 0)" | head -n 1)
  expect "sums on the GPU, $path, $kernel" "$python" "$repo_root/test/system/gpu_sums.py" \
    --backend cuda --path "$path" $(sockets 2)
  for i in 0 1; do expect_stop "$i" TERM; done
done

step "a client is killed while another group sums"
memif_ring_start 2 --gpu.device gpu_cuda0 --gpu.staging mapped
kill_beside_bystanders 6
