#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Sets a Debian up, builds gradwire and runs its tests. The last line sums up the results.
. "$(dirname "$0")/lib/setup.sh"
. "$repo_root/scripts/lib/last_run.sh"

usage() {
  cat <<TEXT
scripts/test.sh [--clang] [--sanitize KINDS [--lean]] [--suites LIST [--needed]] [--build FOLDER]
                [--build-only | --no-build] [--no-setup] [--times N]

Installs what is missing, reserves hugepages, builds, and runs the tests of the default suites:
fast (units), sim (the ring in virtual time), fuzz (arbitrary input, 5 s per target), system
(daemons, one shell story per file). Restores hugepages and mounts at the end. Run it as root.

  --clang           build with clang instead of gcc
  --sanitize KINDS  build with sanitizers: address,undefined or thread. thread covers the unit tests
                    of lib/ipc: both ends of the command queue and of the control socket. It cannot
                    check code on DPDK's threads and rings, because DPDK is not instrumented
  --lean            without the sanitizers' checks of alignment, null and vptr, which take half of
                    the compiler's time; as .ci/run builds
  --suites LIST     comma-separated; default fast,sim,fuzz,system. There is also cost, which counts
                    the instructions of a lane beside idle groups and takes two minutes
                    long: stories and seeds of the default kind that take a minute each
                    large: ops of more than 4 GiB, which take 9 GB of hugepages
                    ptx: more cases of the GPU kernels' PTX on an interpreter, some minutes
                    torch: the PyTorch backend on current PyTorch, which it installs with pip into
                    FOLDER/torch-venv, or \$GRADWIRE_TORCH_VENV: 5 GB, minutes; torch_quick is a
                    part of it that takes two minutes
                    sanitized: the stories that do not compute for minutes with sanitizers
                    plain: the part of fast that .ci/run runs without sanitizers
  --needed          build only what the tests of these suites need; so do sanitizers' builds
  --build FOLDER    build folder; default build, build-clang, build-sanitize
  --build-only      build and run nothing
  --no-build        run what is built, as it is
  --no-setup        do not install packages or reserve hugepages
  --times N         each test may take N times as long: other work runs beside
  --help            this text

Exit status: 0 if no test failed. Logs: FOLDER/meson-logs.
TEXT
}

compiler=gcc
sanitize=none
lean=false
default_suites=fast,sim,fuzz,system
suites=$default_suites
folder=
setup=1
build_only=0
build=1
needed=0
times=1
while (($# > 0)); do
  case $1 in
    --build-only) build_only=1 ;;
    --no-build) build=0 ;;
    --needed) needed=1 ;;
    --clang) compiler=clang ;;
    --sanitize) sanitize=${2:?--sanitize needs a value} && shift ;;
    --lean) lean=true ;;
    --suites) suites=${2:?--suites needs a value} && shift ;;
    --build) folder=${2:?--build needs a value} && shift ;;
    --no-setup) setup=0 ;;
    --times) times=${2:?--times needs a value} && shift ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  shift
done

# All tests; with ThreadSanitizer only those that do not use DPDK.
only=()
if [[ $sanitize == *thread* ]]; then
  suites=fast
  only=(ipc)
  build_targets=(ipc_test)
fi
if [[ -z $folder ]]; then
  folder=$repo_root/build
  [[ $compiler == gcc ]] || folder+=-clang
  [[ $sanitize == none ]] || folder+=-sanitize
fi

# starts_no_daemon SUITE: whether its tests are programs by themselves.
starts_no_daemon() { [[ $1 =~ ^(fast|plain|sim|fuzz|cost)$ ]]; }

need_root
if ((setup)); then
  need_debian
  sets=(build run train check)
  # Stories that watch daemons from outside, and that compare with other programs.
  [[ ,$suites, != *,system,* ]] || sets+=(observe)
  [[ ,$suites, != *,long,* ]] || sets+=(plot compare)
  [[ $compiler == gcc ]] || sets+=(ci)
  install_packages "${sets[@]}"
  fetch_dpdk_headers
  hugepages=$unit_hugepages
  for suite in ${suites//,/ }; do starts_no_daemon "$suite" || hugepages=$test_hugepages; done
  reserve_hugepages "$hugepages"
  mount_hugetlbfs
fi

# Only the default build is optimized; of a build with sanitizers what tests spend their time in is
# (lib/meson.build). Another compiler's warnings and a sanitizer's findings do not
# depend on it, and optimizing instrumented code takes minutes for each file.
buildtype=debug
[[ $compiler != gcc || $sanitize != none ]] || buildtype=debugoptimized
options=(--buildtype "$buildtype" -Db_sanitize="$sanitize" -Dtests=true)
# A library gets the sanitizers' symbols from the program that loads it.
[[ $sanitize == none ]] || options+=(-Db_lundef=false -Dchecks=true)
options+=(-Dlean_sanitizers="$lean")
# CUDA's compiler works with gcc, and takes minutes, which are wasted if the kernels do not run.
[[ $compiler == gcc && $sanitize == none ]] || options+=(-Dcuda=disabled)
# The default build compiles all that there is; what sanitizers instrument takes far longer.
if ((${#build_targets[@]} == 0)); then
  build_suites=$suites
  ((needed)) || [[ $sanitize != none ]] || build_all=1
fi
((!build)) || build_tree "$folder" "$compiler" "${options[@]}"
((!build_only)) || exit 0

if [[ ,$suites, == *,torch,* || ,$suites, == *,torch_quick,* ]]; then
  export GRADWIRE_TORCH_VENV=${GRADWIRE_TORCH_VENV:-$folder/torch-venv}
  . "$repo_root/scripts/lib/torch_venv.sh"
  torch_venv "$GRADWIRE_TORCH_VENV"
fi

# Logs of an earlier run of the same suites must not be counted for this one.
for suite in ${suites//,/ }; do rm -f "$folder"/meson-logs/suite-*"$suite"*.json; done
export GRADWIRE_SANITIZE=$sanitize
. "$repo_root/scripts/lib/sanitizers.sh"
timeout_multiplier=$((timeout_multiplier * times))
# What computes runs together, two tests at once to the end; what waits for daemons apart from it.
units=() stories=()
for suite in ${suites//,/ }; do
  if ! suite_exists "$folder" "$suite"; then
    note "suite $suite: no such tests in this build"
    continue
  fi
  if starts_no_daemon "$suite"; then units+=("$suite"); else stories+=("$suite"); fi
done
logs=()
# run_suites SUITE...
run_suites() {
  local name output names=() suite
  name=suite-$(IFS=- && printf '%s' "$*")
  output=$folder/meson-logs/$name.out
  for suite in "$@"; do names+=(--suite "$suite"); done
  step "tests: $*"
  if with_progress 30 "$output" "suite $*" \
    meson test -C "$folder" --no-rebuild "${names[@]}" --print-errorlogs "${only[@]}" \
    --timeout-multiplier "$timeout_multiplier" --logbase "$name"; then
    grep -aE '^ *[0-9]+/[0-9]+ ' "$output" | sed 's/^/       /' || true
  else
    # Failures are shown in full here, and counted below from the logs.
    sed 's/^/       /' "$output"
  fi
  [[ -s $folder/meson-logs/$name.json ]] || die "suite $* did not run: $(tail -n 1 "$output")"
  logs+=("$folder/meson-logs/$name.json")
}
((${#units[@]} == 0)) || run_suites "${units[@]}"
((${#stories[@]} == 0)) || run_suites "${stories[@]}"
((${#logs[@]} > 0)) || die "this build has no tests in the suites '$suites'."
step "sum of ${suites} ($compiler, sanitizers: $sanitize)"
"$python" "$repo_root/scripts/lib/count_tests.py" "${logs[@]}"
# It passed: the suites that .ci/run leaves out have run whole.
if [[ $sanitize == thread ]]; then
  last_run_write thread "suite fast of lib/ipc"
elif [[ $sanitize == address,undefined && $lean == false && ,$suites, == *,system,* ]]; then
  last_run_write stories "$compiler, suite system with sanitizers"
elif [[ $compiler == clang && $sanitize == none && ,$suites, == *,fast,* ]]; then
  last_run_write alone "suite fast by clang"
# A newcomer's run changes no file.
elif [[ $compiler == gcc && $sanitize == none && $suites != "$default_suites" ]]; then
  for suite in fast long ptx large torch; do
    [[ ,$suites, != *,$suite,* ]] || last_run_write "$suite" "gcc"
  done
fi
