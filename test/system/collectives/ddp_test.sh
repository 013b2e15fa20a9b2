#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A few steps of the demo's training job on two daemons: the gradients of PyTorch DDP go through
# gradwire's hook. The processes end with the same bits, and close to what Gloo gives.
. "$(dirname "$0")/../_init.sh"

"$python" -c 'import torch.distributed as d; raise SystemExit(not d.is_available())' 2>/dev/null ||
  skip "there is no PyTorch with torch.distributed"
[[ -d /usr/share/common-licenses ]] || skip "there are no texts in /usr/share/common-licenses"
export PYTHONPATH=$PYTHONPATH:$repo_root/scripts/demo GLOO_SOCKET_IFNAME=lo
export USE_LIBUV=0 # Debian 13's torch 2.6 asks for it, and was built without

# train BACKEND WORLD MEMBERS: one job, its results in $run_dir/job
train() {
  local backend=$1 world=$2 members=$3 rank
  mkdir -p "$run_dir/job"
  export WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 MASTER_PORT
  MASTER_PORT=$(free_tcp_port)
  for ((rank = 0; rank < world; rank++)); do
    RANK=$rank GRADWIRE_SOCKET=$(daemon_socket $((rank / members))) background \
      "$backend-$world-$rank" "$python" "$repo_root/scripts/demo/train.py" --backend "$backend" \
      --out "$run_dir/job" --steps 6 --batch 2 --members "$members"
  done
  for ((rank = 0; rank < world; rank++)); do
    expect_ended "$backend, process $rank of $world" "$backend-$world-$rank"
  done
}

memif_ring_start 2
for members in 1 2; do
  world=$((2 * members))
  # The second job has every sum's digest compared over all processes: they agree.
  ((members == 1)) || export GRADWIRE_DIGEST=1
  train gradwire $world $members
  train gloo $world $members
  expect "bit-equal weights, close to Gloo's" "$python" "$repo_root/scripts/demo/compare.py" \
    "$run_dir/job" --world $world --tolerance 1e-4
done
