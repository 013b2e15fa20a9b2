#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dpdk_test_gpudev.sh DRIVER: DPDK's own test of gpudev drivers on gpu_cuda and a GPU. Without
# GDRCopy exactly the subtest that maps GPU memory for the CPU may fail.
set -euo pipefail
if ! "$(dirname "$0")/../support/python.sh" -c 'import ctypes; ctypes.CDLL("libcuda.so.1")'; then
  echo "skipped: there is no libcuda.so.1, so no GPU"
  exit 77
fi
except=
[[ -e /dev/gdrdrv ]] || except='Map GPU memory for CPU visibility'
exec "$(dirname "$0")/../unit/gpu/dpdk_test_gpudev.sh" "$1" gpu_cuda0,id=0 "$except"
