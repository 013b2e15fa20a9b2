# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced after _init.sh by stories on a real GPU: daemons get the driver and one device, gpu_cuda0.
gpu_cuda=${GRADWIRE_GPU_CUDA:-$build_folder/drivers/gpu/cuda/librte_gpu_cuda.so}
[[ -f $gpu_cuda ]] || skip "this build has no drivers"
"$python" -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null ||
  skip "there is no libcuda.so.1, so no GPU"
# By name alone: the EAL refuses a path that everybody may write to part of, as a clone's in /tmp.
export LD_LIBRARY_PATH=${gpu_cuda%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
daemon_eal=(-d "${gpu_cuda##*/}" --vdev gpu_cuda0,id=0)
