#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# CUDA tensors on daemons whose gradient memory is the host's, without a GPU: the tests' own
# libcuda.so.1, whose streams can be late and fail, under the client library.
. "$(dirname "$0")/_torch.sh"

fake_cuda=${GRADWIRE_FAKE_CUDA:-$build_folder/test/unit/gpu}
[[ -e $fake_cuda/libcuda.so.1 ]] ||
  skip "there is no $fake_cuda/libcuda.so.1: ninja -C build makes it"
memif_ring_start 2 "${torch_daemon_flags[@]}"
# The daemons run without it.
export LD_LIBRARY_PATH=$fake_cuda GRADWIRE_FAKE_CUDA_EVERYWHERE=1
job "two daemons" 1 1 -- "$repo_root/test/torch/cuda_tensors.py"
job "two daemons, one process at one and two at the other" 1 2 -- \
  "$repo_root/test/torch/cuda_tensors.py"
