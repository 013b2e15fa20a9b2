#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A process group gets other members and stays the same: by torch's own API, as Gloo does it; and in
# training that loses a process, goes on without it, and takes one in.
. "$(dirname "$0")/_torch.sh"

expect "survivors and newcomers find each other, without daemons" \
  "$torch_python" "$repo_root/test/torch/members/rounds.py"

memif_ring_start 2 "${torch_daemon_flags[@]}"

# reconfigured BACKEND: what the processes of such a job print, in order.
reconfigured() {
  local rank
  job "reconfigure, $1" 2 1 -- "$repo_root/test/torch/members/reconfigured.py" "$1"
  for rank in 0 1 2; do grep '^process ' "$run_dir/job-$rank.out"; done >"$run_dir/$1.said"
}
reconfigured gloo
reconfigured gradwire
# What gradwire says last is of a set of handles, to which Gloo gives any order.
for rank in 0 1 2; do
  diff <(grep "^process $rank" "$run_dir/gloo.said" | grep -v ended) \
    <(grep "^process $rank" "$run_dir/gradwire.said" | grep -v ended | head -n -1) ||
    fail "process $rank: gradwire says else than Gloo"
done

# trained KILLED: three processes train, that one is killed, and another one is taken in.
trained() {
  local rank killed=$1 job_port programs=$repo_root/test/torch/members
  job_port=$(free_tcp_port)
  export TORCHELASTIC_USE_AGENT_STORE=True
  MASTER_PORT=$job_port background store "$torch_python" "$programs/agent_store.py"
  eventually 60 grep -q serves "$run_dir/store.out" || fail "the store does not serve"
  step "three processes train, process $killed is killed, another one comes"
  job_start 2 1 -- "$programs/regrouped.py" "$killed" 5
  eventually 60 grep -q 'went on' "$run_dir/job-$(((killed + 1) % 3)).out" ||
    fail "the others do not go on"
  RANK=7 LOCAL_RANK=7 GRADWIRE_SOCKET=$(daemon_socket 1) background newcomer \
    timeout $((job_seconds * timeout_multiplier)) "$torch_python" \
    "$programs/regrouped.py" "$killed" 5 newcomer
  for rank in 0 1 2; do
    ended "job-$rank" || ((rank == killed)) ||
      { tail -n 25 "$run_dir/job-$rank.out" && fail "process $rank"; }
    ((rank == killed)) && continue
    sed '/^USDT:/d; s/^/       /' "$run_dir/job-$rank.out"
    expect_text "process $rank goes on" '^went on: rank . of 2, newcomers \[\]' \
      "$run_dir/job-$rank.out"
    expect_text "takes one in" '^took in: rank . of 3, newcomers \[2\]' "$run_dir/job-$rank.out"
    expect_text "and ends" '^ended with 3$' "$run_dir/job-$rank.out"
  done
  ended newcomer || { tail -n 25 "$run_dir/newcomer.out" && fail "the newcomer"; }
  expect_text "the newcomer is taken in" '^taken in: rank 2 of 3' "$run_dir/newcomer.out"
  expect_text "and has trained with the others" '^ended with 3$' "$run_dir/newcomer.out"
}
trained 2
trained 0
