#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The PyTorch backend on CUDA tensors, on a real GPU that daemons and processes share:
# scripts/gpu-check.sh runs it. Jobs of two and three processes at two daemons, by daemons that
# reduce on the CPU, as most have it, by such that reduce on the GPU, and by such whose gradient
# memory is the GPU's. $1: where the figures go, as JSON. $2: only the jobs whose names match this
# extended regular expression. A job that fails does not keep the next from running: a GPU is not
# always at hand.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_gpu_cuda.sh"

figures=${1:-$run_dir/torch.json}
only=${2:-.}
export PYTHONPATH=$PYTHONPATH:$repo_root/test/torch:$repo_root/test/gpu
device=cuda
[[ -z ${GRADWIRE_PTX:-} ]] || device=cpu
"$python" - "$device" <<'PYTHON' || skip "there is no torch for it: see the line above"
import sys
try:
    import torch, older_torch
    older_torch.adapt()
    why = "" if sys.argv[1] == "cpu" or torch.cuda.is_available() else "torch finds no GPU"
except (ImportError, AttributeError) as error:  # an attribute: of a torch before 2.0
    why = str(error)
sys.exit(why or 0)
PYTHON
rm -f "$figures"
export MASTER_ADDR=127.0.0.1 MASTER_PORT GLOO_SOCKET_IFNAME=lo
# More streams than CUDA has queues hold each other.
export CUDA_DEVICE_MAX_CONNECTIONS=32
job_seconds=100
failed=()

# job NAME PROCESSES_AT_EACH... -- ARGUMENT...: test/gpu/torch_backend.py in as many processes at
# each daemon, and what the first said; if they failed, what all said.
job() {
  local name=$1 daemon=0 rank=0 count=0 status=0 at=()
  shift
  [[ $name =~ $only ]] || return 0
  while [[ $1 != -- ]]; do at+=("$1") && shift; done
  shift
  step "$name"
  for count in "${at[@]}"; do rank=$((rank + count)); done
  export WORLD_SIZE=$rank
  MASTER_PORT=$(free_tcp_port)
  rank=0
  for count in "${at[@]}"; do
    while ((count-- > 0)); do
      RANK=$rank GRADWIRE_SOCKET=$(daemon_socket "$daemon") background "torch-$rank" \
        timeout $((job_seconds * timeout_multiplier)) "$python" \
        "$repo_root/test/gpu/torch_backend.py" "$name" --device "$device" --json "$figures" "$@"
      rank=$((rank + 1))
    done
    daemon=$((daemon + 1))
  done
  for ((rank = 0; rank < WORLD_SIZE; rank++)); do
    ended "torch-$rank" || status=$?
  done
  if ((status)); then
    failed+=("$name")
    for ((rank = 1; rank < WORLD_SIZE; rank++)); do
      printf -- '--- process %s\n' "$rank" && tail -n 30 "$run_dir/torch-$rank.out"
    done
    for daemon in 0 1; do
      printf -- '--- daemon %s\n' "$daemon" && tail -n 5 "$(daemon_log "$daemon")"
    done
    printf -- '--- process 0\n' && tail -n 70 "$run_dir/torch-0.out"
    note "FAILED: $name"
  else
    sed '/\.\.\.$/d; s/^/       /' "$run_dir/torch-0.out"
  fi
}

# What a job said stands above; the daemons' logs would push it out of sight.
finish() {
  ((${#failed[@]} == 0)) || { printf 'FAILED: %s\n' "${failed[@]}" && exit 1; }
  exit 0
}

cuda_eal=("${daemon_eal[@]}")
daemon_eal=()
memif_ring_start 2 --limits.groups 64 --limits.client_groups 64
job "reduced on the CPU" 1 1 -- \
  --calls all_reduce all_gather reduce_scatter all_to_all send_recv
job "reduced on the CPU, three processes" 1 2 --
for i in 0 1; do expect_stop "$i" TERM; done
if [[ $device == cpu ]]; then
  note "torch's CUDA tensors need a GPU: on the interpreter the story ends here"
  finish
fi

daemon_eal=("${cuda_eal[@]}")
for memory in host gpu; do
  name="reduced on the GPU"
  [[ $memory == host ]] || name="gradient memory of the GPU"
  # As many groups as a GPU's queue has room for.
  memif_ring_start 2 --limits.groups 16 --limits.client_groups 16 --gpu.device gpu_cuda0 \
    --gpu.client_memory "$memory" --gpu.staging auto
  job "$name" 1 1 -- --memory "$memory" --calls all_reduce
  "$python" "$programs/status.py" "$(daemon_socket 0)" >"$run_dir/status" ||
    failed+=("$name: daemon 0 does not answer")
  if grep -A 4 '"backend": "cpu' "$run_dir/status" | grep -q '"chunks_reduced": [1-9]'; then
    failed+=("$name: the CPU reduced chunks")
  fi
  for i in 0 1; do daemon_stop "$i" TERM || failed+=("$name: daemon $i did not end well"); done
done
finish
