#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What wire formats do to the loss of the demo's models (training_formats.py): two processes at two
# daemons joined by memif. By hand; an hour or more on two cores:
#   GRADWIRE_TORCH_VENV=... GRADWIRE_BUILD=build test/perf/training_formats.sh FOLDER [OPTION...]
#   GRADWIRE_TORCH_VENV=... GRADWIRE_BUILD=build test/perf/training_formats.sh FOLDER [OPTION...]
. "$(dirname "$0")/../torch/_torch.sh"

folder=${1:?a folder for the results}
shift
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
export PYTHONPATH=$PYTHONPATH:$repo_root/scripts/demo OMP_NUM_THREADS=1
job_seconds=${SECONDS_MAX:-36000}
daemon_pin_lanes 2
memif_ring_start 2 "${torch_daemon_flags[@]}"
job "training" 1 1 -- "$repo_root/test/perf/training_formats.py" run "$folder" "$@"
"$torch_python" "$repo_root/test/perf/training_formats.py" page "$folder" || step "a bar is missed"
