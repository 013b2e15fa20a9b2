#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Training by DDP, FSDP2 and HSDP on two daemons of two processes each gives Gloo's loss, and the
# same bits on all ranks and in two runs. A checkpoint of FSDP2's is loaded into DDP's layout; a
# tensor-parallel layer gives what it gives whole.
. "$(dirname "$0")/_torch.sh"

train=$repo_root/test/torch/training/train.py
memif_ring_start 2 "${torch_daemon_flags[@]}"
mkdir "$run_dir/first" "$run_dir/again"
for layout in ddp fsdp hsdp; do
  job "gradwire, $layout" 2 2 -- "$train" gradwire $layout "$run_dir/first"
  job "gradwire, $layout, again" 2 2 -- "$train" gradwire $layout "$run_dir/again"
  job "Gloo, $layout" 2 2 -- "$train" gloo $layout "$run_dir/first"
done
job "the checkpoint of FSDP2 on four, in DDP on two" 1 1 -- "$train" gradwire load "$run_dir/first"
job "tensor parallel" 2 2 -- "$train" gradwire tensor "$run_dir/first"
expect "equal bits, and Gloo's loss" "$torch_python" "$repo_root/test/torch/training/same.py" \
  "$run_dir/first" "$run_dir/again" 4 ddp fsdp hsdp
