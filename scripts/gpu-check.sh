#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks everything that needs a GPU, in one command: builds, runs the tests of the suite `gpu`,
# sums between two daemons that reduce on the GPU, and runs the benches. Prints one table, and JSON.
. "$(dirname "$0")/lib/setup.sh"
. "$repo_root/scripts/lib/last_run.sh"

usage() {
  cat <<TEXT
scripts/gpu-check.sh [--build FOLDER] [--out FILE] [--no-setup] [--no-build]
                     [--driver-headers FOLDER] [--checks PATTERN] [--limit SECONDS] [--dry-run]

Run it as root on a host with an NVIDIA GPU, its driver and CUDA's compiler. It builds for that GPU
and runs: DPDK's test of gpudev drivers on gpu_cuda; the reduce backend's cases on the GPU; an
all-reduce of two daemons over memif that both reduce on the GPU, and small ones of three off the
ring; a client killed in the middle of its ops while another group continues; every other
collective; the same with gradients in GPU memory; all-reduces of torch's CUDA tensors compared with
Gloo's, and DDP with CUDA buckets, by daemons whose gradient memory is the GPU's and the host's; the
PyTorch backend on CUDA tensors; the benchmarks of the kernels; and, if it is installed, the
backend's cases under compute-sanitizer, memcheck and racecheck.

  --build FOLDER  build folder; default build-gpu
  --out FILE      JSON with the results; default FOLDER/gpu-check.json
  --no-setup      do not install packages or reserve hugepages
  --no-build      build nothing: FOLDER was built before, on this host or on one like it
  --checks PATTERN  only the checks whose names match this extended regular expression
  --limit SECONDS the most that a check may take; default 240
  --driver-headers FOLDER  DPDK's driver headers, if no package source is available (another host
                  has them in /var/cache/gradwire after scripts/test.sh)

  --dry-run       tries all of this without a GPU: the kernels' PTX on an interpreter (test/ptx)
                  takes the GPU's place. The figures of the benches then mean nothing

Each check's whole output is kept in FOLDER/gpu-check.

Uses the first Python of GRADWIRE_PYTHON, Debian's and those in PATH that has numpy and a torch that
finds the GPU. If there is none, it uses Debian's and skips what needs torch.

Exit status: 0 if nothing failed.
TEXT
}

folder=$repo_root/build-gpu
out=
setup=1
headers=
checks=.
limit=240
build=1
dry=0
while (($# > 0)); do
  case $1 in
    --build) folder=${2:?--build needs a value} && shift ;;
    --out) out=${2:?--out needs a value} && shift ;;
    --no-setup) setup=0 ;;
    --no-build) build=0 ;;
    --checks) checks=${2:?--checks needs a value} && shift ;;
    --limit) limit=${2:?--limit needs a value} && shift ;;
    --dry-run) dry=1 ;;
    --driver-headers) headers=${2:?--driver-headers needs a value} && shift ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  shift
done
out=${out:-$folder/gpu-check.json}

need_root
export PATH=$PATH:/usr/local/cuda/bin
if ((!dry)); then
  command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 ||
    die "nvidia-smi finds no GPU on this machine, but this script needs one."
  ((!build)) || command -v nvcc >/dev/null ||
    die "there is no nvcc: install CUDA's compiler."
fi
if ((setup)); then
  [[ -f /etc/debian_version ]] && install_packages build run
  [[ -n $headers ]] || fetch_dpdk_headers
  reserve_hugepages 512
  mount_hugetlbfs
fi
if [[ -n $headers ]]; then
  headers=$(cd "$headers" && pwd)
  [[ -f $headers/gpudev_driver.h ]] || die "$headers has no gpudev_driver.h."
fi
for candidate in "${GRADWIRE_PYTHON:-}" "$python" $(type -aP python3) /opt/conda/bin/python3; do
  [[ -n $candidate ]] && "$candidate" - 2>/dev/null <<'PYTHON' || continue
import sys
import numpy, torch
sys.exit(not torch.cuda.is_available())
PYTHON
  export GRADWIRE_PYTHON=$candidate
  break
done
note "Python: ${GRADWIRE_PYTHON:-$python, without a torch that finds the GPU}"
gpu_cuda=$folder/drivers/gpu/cuda/librte_gpu_cuda.so
export GRADWIRE_BUILD=$folder GRADWIRE_GPU_CUDA=$gpu_cuda GRADWIRE_DRIVERS=$gpu_cuda
cases=$folder/test/gpu/cuda_backend_test
bench=("$folder/test/gpu/gpu_bench")
build_targets=(gradwired gradwire:executable gradwire:shared_library rte_gpu_cuda rank_client)
if ((dry)); then
  gpu="none: PTX on an interpreter"
  step "GPU: $gpu"
  build_targets+=(gradwired-ptx executor_ptx_test cuda gdrapi)
  export GRADWIRED=$folder/test/ptx/gradwired-ptx GRADWIRE_PTX=$folder/test/ptx
  export GRADWIRE_FAKE_CUDA_MEMORY=268435456 GRADWIRE_GPU_CASES=60
  cases=$folder/test/ptx/executor_ptx_test
  bench=("$folder/test/ptx/gpu_bench_ptx" --quick)
  ! command -v nvcc >/dev/null || build_targets+=(gpu_bench_ptx)
  ((!build)) || build_tree "$folder" gcc --buildtype debugoptimized -Dtests=true \
    -Ddpdk_driver_headers="$headers"
  export LD_LIBRARY_PATH=$folder/test/unit/gpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
  gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
  step "GPU: $gpu, sm_$arch"
  build_targets+=(cuda_backend_test gpu_bench)
  ((!build)) || build_tree "$folder" gcc --buildtype debugoptimized -Dtests=true -Dcuda=enabled \
    -Dgpu_architectures="$arch" -Ddpdk_driver_headers="$headers"
fi
logs=$folder/gpu-check
rm -rf "$logs" && mkdir -p "$logs"
names=()
verdicts=()
# check NAME COMMAND...
check() {
  local name=$1 verdict=passed status=0 log
  shift
  last=
  [[ $name =~ $checks ]] || return 0
  step "$name"
  log=$logs/$((${#names[@]} + 1)).log
  timeout --kill-after 45 "$limit" "$@" >"$log" 2>&1 || status=$?
  case $status in
    0) ;;
    77) verdict=skipped ;;
    124 | 137) verdict="failed: longer than $limit s" ;;
    *) verdict="failed ($status)" ;;
  esac
  [[ $verdict == passed ]] || sed 's/^/       /' "$log" | tail -n 40
  note "$verdict"
  names+=("$name")
  verdicts+=("$verdict")
  [[ $verdict != passed ]] || last=$log
}
# show PATTERN: the lines of the last check that match, if it passed.
show() {
  [[ -z $last ]] || sed -nE "/$1/ s/^/       /p" "$last"
}

check "dpdk-test-gpudev on gpu_cuda" "$repo_root/test/gpu/dpdk_test_gpudev.sh" "$gpu_cuda"
check "reduce cases on the GPU, bit by bit" "$cases"
if [[ -f $folder/lib/reduce/cuda/kernels.o ]]; then
  check "machine code: loads at once, fences" "$python" \
    "$repo_root/test/gpu/machine_code.py" --check "$folder/lib/reduce/cuda/kernels.o"
fi
check "two daemons over memif, sums on the GPU" "$repo_root/test/system/gpu/gpu_cuda_memif.sh"
check "every collective, sends and receives" "$repo_root/test/system/gpu/gpu_cuda_collectives.sh"
check "gradients in GPU memory, beside Gloo" "$repo_root/test/system/gpu/gpu_cuda_gradients.sh" \
  "$logs/gradients.json"
show 'MiB:|^DDP'  # none without a torch that finds the GPU
((dry)) || check "torch's backend on CUDA tensors" "$repo_root/test/system/gpu/gpu_cuda_torch.sh" \
  "$logs/torch.json"
show 'gradwire .*[gG]loo|(DDP|FSDP2): '
# By name only, because the EAL refuses a path with a folder that everybody may write to, such as
# that of a clone in /tmp.
check "benches" env LD_LIBRARY_PATH="${gpu_cuda%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
  "${bench[0]}" "${gpu_cuda##*/}" "$logs/bench.json" "${bench[@]:1}"
show .
if ((dry)); then
  note "compute-sanitizer needs a GPU; on the interpreter ptx_test looks for the same faults"
elif command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    # A launch per batch: a kernel that never ends cannot be watched. The fp16 and bf16 patterns
    # reach every kernel of theirs, and take seconds.
    check "compute-sanitizer $tool" compute-sanitizer --tool "$tool" --error-exitcode 9 "$cases" \
      "every fp16*"
    check "compute-sanitizer $tool, folds of all kinds" \
      env GRADWIRE_GPU_KERNEL=launch GRADWIRE_GPU_CASES=100 \
      compute-sanitizer --tool "$tool" --error-exitcode 9 "$cases" "a GPU gives*"
  done
else
  note "compute-sanitizer is not installed: memcheck and racecheck did not run"
fi
"${GRADWIRE_PYTHON:-$python}" - "$out" "$logs" "$gpu" "${names[@]}" -- "${verdicts[@]}" <<'PYTHON'
import json, os, sys
out, logs, gpu = sys.argv[1:4]
cut = sys.argv.index("--", 4)
checks = dict(zip(sys.argv[4:cut], sys.argv[cut + 1:]))
result = {"gpu": gpu, "checks": checks}
for name in ("bench", "gradients", "gradients-host", "torch"):
    path = "%s/%s.json" % (logs, name)
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            try:
                result[name] = json.load(f)
            except ValueError:
                result[name] = "its program was ended while it wrote this"
with open(out, "w", encoding="utf-8") as f:
    json.dump(result, f, indent=1)
PYTHON
step "sum ($out)"
failed=0
for i in "${!names[@]}"; do
  printf '       %-48s %s\n' "${names[i]}" "${verdicts[i]}"
  [[ ${verdicts[i]} != failed* ]] || failed=1
done
((failed || dry)) || last_run_write gpu "$gpu"
exit "$failed"
