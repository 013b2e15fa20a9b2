#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# torchrun on two hosts starts a job anew that lost a process: the survivors' errors name it, and
# the second attempt forms its groups at the same daemons and ends well.
. "$(dirname "$0")/_torch.sh"

memif_ring_start 2 "${torch_daemon_flags[@]}"
mkdir "$run_dir/job"
port=$(free_tcp_port)
step "two agents of two processes each, at a daemon each; the last process is killed"
for host in 0 1; do
  GRADWIRE_SOCKET=$(daemon_socket "$host") OMP_NUM_THREADS=1 background "agent-$host" \
    timeout $((120 * timeout_multiplier)) "$torch_python" -m torch.distributed.run \
    --nnodes 2 --nproc-per-node 2 --max-restarts 1 --node-rank "$host" \
    --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$port" --local-addr 127.0.0.1 \
    --rdzv-conf "is_host=$((1 - host))" "$repo_root/test/torch/elastic.py" "$run_dir/job"
done
for host in 0 1; do
  ended "agent-$host" && continue
  grep -B6 Error "$run_dir/agent-$host.out" | head -n 60 || true
  fail "agent $host"
done
told=0
for rank in 0 1 2; do
  [[ -e $run_dir/job/told-$rank ]] || continue
  told=$((told + 1))
  expect_text "process $rank was told" 'a client process of rank [01] died: .* hung up' \
    "$run_dir/job/told-$rank"
done
((told == 3)) || fail "$told of three survivors were told whom they lost"
for rank in 0 1 2 3; do
  expect_text "process $rank of the second attempt" '^4 processes from step 20$' \
    "$run_dir/job/ended-$rank"
done
