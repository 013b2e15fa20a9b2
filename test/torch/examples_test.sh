#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The examples of python/examples run as they are: a mixture of experts with uneven all-to-alls,
# whose losses are Gloo's, and, if they are installed, Accelerate and Lightning. Their losses are
# Gloo's, too, and fall.
. "$(dirname "$0")/_torch.sh"

run=$repo_root/test/torch/examples/run.py
examples=$repo_root/python/examples
memif_ring_start 2 "${torch_daemon_flags[@]}"

# losses: the lines of the last job's rank 0 that have one.
losses() { grep -E '^(step|epoch) +[0-9]+: loss [0-9.]+' "$run_dir/job-0.out"; }
# falls FILE: the last loss in it is below nine tenths of the first.
falls() {
  awk '{ sub(",", "", $4); last = $4; if (NR == 1) first = last }
    END { exit !(last < 0.9 * first) }' "$1"
}
# by_job NAME BACKEND ARGUMENT...: the example by two processes, at two daemons.
by_job() { job "$1, $2" 1 1 -- "$run" "$examples/$1.py" --backend "$2" "${@:3}"; }
# by_torchrun NAME BACKEND ARGUMENT...: the same at one daemon, started as a user does: Lightning
# wants to know it.
by_torchrun() {
  GRADWIRE_SOCKET=$(daemon_socket 0) timeout $((120 * timeout_multiplier)) "$torch_python" \
    -m torch.distributed.run --nproc-per-node 2 --master-port "$(free_tcp_port)" \
    "$run" "$examples/$1.py" --backend "$2" "${@:3}" >"$run_dir/job-0.out" 2>&1 || {
    tail -n 25 "$run_dir/job-0.out"
    fail "$1, $2"
  }
}
# both BY NAME ARGUMENT...: the example on gradwire and on Gloo.
both() {
  local by=$1 name=$2 backend
  for backend in gradwire gloo; do
    "$by" "$name" $backend "${@:3}"
    losses >"$run_dir/$name-$backend"
  done
  expect "$name: Gloo's losses" diff "$run_dir/$name-gloo" "$run_dir/$name-gradwire"
  expect "$name learns" falls "$run_dir/$name-gradwire"
}

both by_job moe --steps 60
job "moe, 3 processes and few tokens" 1 2 -- "$run" "$examples/moe.py" --steps 20 --tokens 3

there() { "$torch_python" -c "import $1" 2>/dev/null || ! note "$1 is not installed"; }
! there accelerate || both by_job accelerate_train --epochs 3
! there lightning || both by_torchrun lightning_train --epochs 3
