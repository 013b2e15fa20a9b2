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
# both NAME ARGUMENT...: the example on gradwire, two processes at two daemons, and on Gloo.
both() {
  local name=$1 backend
  shift
  for backend in gradwire gloo; do
    job "$name, $backend" 1 1 -- "$run" "$examples/$name.py" --backend $backend "$@"
    losses >"$run_dir/$name-$backend"
  done
  expect "$name: Gloo's losses" diff "$run_dir/$name-gloo" "$run_dir/$name-gradwire"
  expect "$name learns" falls "$run_dir/$name-gradwire"
}

both moe --steps 60
job "moe, 3 processes and few tokens" 1 2 -- "$run" "$examples/moe.py" --steps 20 --tokens 3

there() { "$torch_python" -c "import $1" 2>/dev/null; }
if there accelerate; then
  both accelerate_train --epochs 3
else
  note "accelerate is not installed"
fi
if there lightning; then
  for backend in gradwire gloo; do
    GRADWIRE_SOCKET=$(daemon_socket 0) timeout $((120 * timeout_multiplier)) "$torch_python" \
      -m torch.distributed.run --nproc-per-node 2 --master-port "$(free_tcp_port)" \
      "$run" "$examples/lightning_train.py" --backend $backend --epochs 3 \
      >"$run_dir/job-0.out" 2>&1 || {
      tail -n 25 "$run_dir/job-0.out"
      fail "lightning_train, $backend"
    }
    losses >"$run_dir/lightning-$backend"
  done
  expect "lightning_train: Gloo's losses" diff "$run_dir/lightning-gloo" \
    "$run_dir/lightning-gradwire"
  expect "lightning_train learns" falls "$run_dir/lightning-gradwire"
else
  note "lightning is not installed"
fi
