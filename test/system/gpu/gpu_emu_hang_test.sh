#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A GPU hangs in the middle of an op. Its daemon answers all the while, and ends when it is told to:
# with an error that says so, and without giving back what the GPU may still write to.
. "$(dirname "$0")/../_init.sh"

gpu_emu=${GRADWIRE_GPU_EMU:-$build_folder/drivers/gpu/emu/librte_gpu_emu.so}
[[ -f $gpu_emu ]] || skip "this build has no drivers: DPDK's driver headers were not to be had"
# By name alone: the EAL refuses a path that everybody may write to part of, as a clone's in /tmp.
export LD_LIBRARY_PATH=${gpu_emu%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

# reduced: chunks that daemon 0's GPU has reduced.
reduced() {
  "$python" -c '
import sys, gradwire
print(sum(r["chunks_reduced"] for r in gradwire.daemon_status(sys.argv[1])["reduce"]))
' "$(daemon_socket 0)"
}
stands() {
  local before
  before=$(reduced) && sleep 1 && (($(reduced) == before))
}

for kernel in launch persistent; do
  step "$kernel"
  daemon_eal=(-d "${gpu_emu##*/}" --vdev gpu_emu0,hang_after=5000,hang_ms=600000)
  memif_rank_start 0 2 --gpu.device gpu_emu0 --gpu.staging mapped --gpu.kernel "$kernel" \
    --timeouts.drain_ms 200 --timeouts.close_ms 200
  daemon_eal=()
  memif_rank_start 1 2 --timeouts.drain_ms 200 --timeouts.close_ms 200
  for i in 0 1; do daemon_wait_ready "$i" || fail "daemon $i does not start"; done
  # shellcheck disable=SC2046
  background "sums-$kernel" "$python" "$programs/until_error.py" \
    --out "$run_dir/error-$kernel" $(sockets 2)
  eventually 30 grep -q running "$run_dir/sums-$kernel.out" || fail "no sum got through"
  eventually 30 stands || fail "the GPU does not hang"
  status=0
  daemon_stop 0 TERM || status=$?
  ((status == 1)) || fail "the daemon of a GPU that hangs left with status $status"
  expect_text "the error says what hangs" \
    'GPU gpu_emu0: a kernel of lane 0 has not ended within 10 s' "$(daemon_log 0)"
  ended "sums-$kernel" || true
  expect_stop 1 TERM
done
