# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What every story of the PyTorch backend sources first: jobs of current PyTorch on daemons here.
#   GRADWIRE_TORCH_VENV  a virtual environment with torch 2.14 or later; default build/torch-venv
. "$(dirname "${BASH_SOURCE[0]}")/../system/_init.sh"

torch_python=${GRADWIRE_TORCH_VENV:-$build_folder/torch-venv}/bin/python
"$torch_python" -c 'import torch, numpy' 2>/dev/null ||
  skip "there is no current PyTorch at $torch_python: scripts/test.sh --suites torch installs it"
export PYTHONPATH=$PYTHONPATH:$repo_root/test/torch GLOO_SOCKET_IFNAME=lo MASTER_ADDR=127.0.0.1
# Each pair of processes that sends and receives has a group of its own.
torch_daemon_flags=(--limits.groups 64 --limits.client_groups 64)

jobs_run=0
job_seconds=120
# job_start PROCESSES_AT_EACH... -- PROGRAM ARGUMENT...: as many at each daemon, in its order. Their
# names are job-RANK, their number is in $job_world. Their rendezvous is at $job_port, if it is set.
job_start() {
  local at=() daemon=0 rank=0 count
  while [[ $1 != -- ]]; do at+=("$1") && shift; done
  shift
  job_world=0
  for count in "${at[@]}"; do job_world=$((job_world + count)); done
  jobs_run=$((jobs_run + 1))
  export WORLD_SIZE=$job_world MASTER_PORT
  MASTER_PORT=${job_port:-$(free_tcp_port)}
  for count in "${at[@]}"; do
    while ((count-- > 0)); do
      RANK=$rank LOCAL_RANK=$rank GRADWIRE_SOCKET=$(daemon_socket "$daemon") \
        background "job-$rank" timeout $((job_seconds * timeout_multiplier)) "$torch_python" "$@"
      rank=$((rank + 1))
    done
    daemon=$((daemon + 1))
  done
}

# job WHAT PROCESSES_AT_EACH... -- PROGRAM ARGUMENT...: and every process ends well.
job() {
  local what=$1 rank failed=
  shift
  job_start "$@"
  step "$what: $job_world processes"
  for ((rank = 0; rank < job_world; rank++)); do
    ended "job-$rank" || failed+=" $rank"
  done
  if [[ -n $failed ]]; then
    for rank in $failed; do
      printf -- '--- process %s\n' "$rank" && tail -n 25 "$run_dir/job-$rank.out"
    done
    fail "$what: processes$failed of $job_world"
  fi
  sed '/^USDT:/d; s/^/       /' "$run_dir/job-0.out"
}
