#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Times of torch.distributed's calls and of training steps, on gradwire and on Gloo in turns, and a
# page of them. By hand, on a machine with nothing else to do:
#   GRADWIRE_TORCH_VENV=... GRADWIRE_BUILD=build test/perf/torch_figures.sh [PAGE]
#   PARTS    calls, many (thousands of small calls at once), steps; default all three
#   ROUNDS   how often each of the two runs; default 5
#   SECONDS_EACH  for how long a call is repeated; default 1
#   SIZES    in bytes; default 8 B, 64 KB, 1 MB, 64 MB
# It uses the C++ extension if `python -m gradwire.torch.build` has built it with that torch.
. "$(dirname "$0")/../torch/_torch.sh"

page=${1:-$build_folder/torch-figures.md}
read -ra sizes <<<"${SIZES:-8 65536 1048576 67108864}"
export OMP_NUM_THREADS=1 LOAD_BEFORE
LOAD_BEFORE=$(cut -d' ' -f1-3 /proc/loadavg)
job_seconds=540
daemon_pin_lanes 2
measured=()
for ((round = 1; round <= ${ROUNDS:-5}; round++)); do
  for backend in gloo gradwire; do
    if [[ $backend == gradwire ]]; then memif_ring_start 2 "${torch_daemon_flags[@]}"; fi
    job "round $round, $backend" 1 1 -- "$repo_root/test/perf/torch_figures.py" measure \
      "$backend" "${PARTS:-calls,many,steps}" "${SECONDS_EACH:-1}" "${sizes[@]}"
    cp "$run_dir/job-0.out" "$run_dir/$backend-$round.out"
    measured+=("$run_dir/$backend-$round.out")
    if [[ $backend == gradwire ]]; then
      for daemon in 0 1; do daemon_stop "$daemon" TERM; done
    fi
  done
done
"$torch_python" "$repo_root/test/perf/torch_figures.py" page "${measured[@]}" >"$page"
step "written: $page"
