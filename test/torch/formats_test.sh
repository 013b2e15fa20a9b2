#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Gradients that travel as bf16 and int8, by DDP's hook with error feedback and by the backend's
# calls: every bit is the numpy reference's, with one and two processes at each of two daemons. A
# group whose daemons have no formats goes on without; one that lost a rank keeps its residuals, and
# so do two models of one hook. Where gradient memory is little, residuals make room.
. "$(dirname "$0")/_torch.sh"

formats=$repo_root/test/torch/formats.py
memif_ring_start 2 "${torch_daemon_flags[@]}"
for what in hook calls; do
  job "$what, one process at each daemon" 1 1 -- "$formats" $what 1
  job "$what, two processes at each daemon" 2 2 -- "$formats" $what 2
done
job "two models" 2 2 -- "$formats" models 2
for rank in 0 1; do expect_stop "$rank" TERM; done

memif_rank_start 0 2 "${torch_daemon_flags[@]}" --transport.tiles never
memif_rank_start 1 2 "${torch_daemon_flags[@]}"
daemon_wait_ready 0 && daemon_wait_ready 1
job "without formats" 2 2 -- "$formats" without 2
for rank in 0 1; do expect_stop "$rank" TERM; done

memif_ring_start 2 "${torch_daemon_flags[@]}" --limits.client_memory_mib 64
job "little memory" 1 1 -- "$formats" little 1
for rank in 0 1; do expect_stop "$rank" TERM; done

memif_ring_start 3 "${torch_daemon_flags[@]}"
step "a host that only sums"
export GRADWIRE_FOLDING_RANKS=1 GRADWIRE_FOLDING_STORE=$run_dir/folding
background fold "$torch_python" -m gradwire.fold --store "$GRADWIRE_FOLDING_STORE" --rank 2 \
  --prefix gradwire-ddp --nranks 3 --socket "$(daemon_socket 2)"
job_start 1 1 -- "$formats" hosts 1
unset GRADWIRE_FOLDING_RANKS GRADWIRE_FOLDING_STORE
eventually 60 test -e "$run_dir/folding/end" || { cat "$run_dir"/job-*.out && fail "no sums"; }
daemon_stop 2 KILL || true
for rank in 0 1; do
  ended "job-$rank" || { tail -n 25 "$run_dir/job-$rank.out" && fail "process $rank"; }
done
if ended fold; then fail "the command succeeded without its daemon"; fi
for rank in 0 1; do expect_stop "$rank" TERM; done
rm -f "$(daemon_socket 2)"

memif_ring_start 3 "${torch_daemon_flags[@]}"
job "a rank less" 1 1 1 -- "$formats" shrunk 1
