#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Every collective through real daemons: 2, 3 and 4 ranks, several members a rank, odd counts, each
# kind of memory, apart and in place; gradwire-perf checks them by its own reference.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_perf.sh"

collectives() { "$python" "$programs/collectives.py" "$@"; }
# shown RANKS MEMBERS OPTION...: perf, and what it printed.
shown() {
  perf "$@"
  sed 's/^/       /' "$run_dir/perf$perf_runs-0-0.out"
}

for ranks in 2 3 4; do
  step "$ranks daemons"
  memif_ring_start "$ranks"
  # shellcheck disable=SC2046
  expect "shared memory" collectives $(sockets "$ranks")
  # shellcheck disable=SC2046
  expect "copied memory, two members" collectives --members 2 --copied --datatypes fp16 \
    $(sockets "$ranks")
  if ((ranks == 3)); then
    # shellcheck disable=SC2046
    expect "three members" collectives --members 3 --datatypes fp64,int32 $(sockets 3)
    shown 3 2 --collective reduce-scatter -d bf16 -o avg --sizes 4,10007,1M
    shown 3 1 --collective reduce-scatter --in-place --sizes 12,3M
    shown 3 2 --collective all-gather -d int8 --sizes 6,10007,1M --in-place
    shown 3 1 --collective broadcast --root 2 --sizes 4,10007,3M
    shown 3 2 --collective reduce --root 3 -d fp16 -o max --sizes 4,10007,1M
    shown 3 2 --collective barrier
  fi
  for ((rank = 0; rank < ranks; rank++)); do expect_stop "$rank" TERM; done
done

# The emulated GPU moves and reduces; each way that payloads can take.
gpu_emu=${GRADWIRE_GPU_EMU:-$build_folder/drivers/gpu/emu/librte_gpu_emu.so}
if [[ -f $gpu_emu ]]; then
  # By name alone: the EAL refuses a path that everybody may write to part of, as a clone's in /tmp.
  export LD_LIBRARY_PATH=${gpu_emu%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  while read -r devargs staging kernel; do
    step "3 daemons with an emulated GPU each: $staging, $kernel${devargs#-}"
    daemon_eal=(-d "${gpu_emu##*/}" --vdev "gpu_emu0${devargs#-}")
    memif_ring_start 3 --gpu.device gpu_emu0 --gpu.staging "$staging" --gpu.kernel "$kernel"
    # shellcheck disable=SC2046
    expect "two members" collectives --members 2 --datatypes fp16 $(sockets 3)
    for ((rank = 0; rank < 3; rank++)); do expect_stop "$rank" TERM; done
  done <<'WAYS'
- mapped launch
- copy persistent
,cpu_map=0,reorder=4,delay_us=20 copy launch
WAYS
fi
