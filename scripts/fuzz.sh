#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the libFuzzer targets of test/fuzz with clang and sanitizers, and runs each for a while.
. "$(dirname "$0")/lib/setup.sh"
. "$repo_root/scripts/lib/last_run.sh"

usage() {
  cat <<TEXT
scripts/fuzz.sh [--seconds S] [--seed N] [--targets LIST] [--jobs N] [--keep]

Builds the targets of test/fuzz with clang, libFuzzer, AddressSanitizer and
UndefinedBehaviorSanitizer, and runs each for S seconds, starting from the inputs in
test/fuzz/corpus. If an input crashes a target, it is kept in FOLDER/findings, and the command that
runs it again is printed.

  --seconds S     seconds for each target; default 60
  --seed N        random seed; default another one each time. With the same seed, build and first
                  inputs, a target tries the same inputs in the same order, and a longer run begins
                  with those of a shorter one (except control_socket, which has threads). Starts
                  only from test/fuzz/corpus.
  --targets LIST  comma-separated; default all: ack_ranges,command_ring,config,connection,
                  contributions,control_socket,entries,sealed,tiles,transfers,wire_codec,
                  wire_formats
  --jobs N        how many targets to run at once; default one for each core
  --keep          add new inputs to test/fuzz/corpus: the fewest that reach the same code
  --build FOLDER  build folder; default build-fuzz
  --no-setup      do not install packages
  --help          this text

Exit status: 0 if nothing was found.
TEXT
}

seconds=60
all_targets=ack_ranges,command_ring,config,connection,contributions,control_socket,entries,sealed
all_targets+=,tiles,transfers,wire_codec,wire_formats
targets=$all_targets
jobs=$(nproc)
keep=0
seed=0
folder=$repo_root/build-fuzz
setup=1
while (($# > 0)); do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a value} && shift ;;
    --targets) targets=${2:?--targets needs a value} && shift ;;
    --seed) seed=${2:?--seed needs a value} && shift ;;
    --jobs) jobs=${2:?--jobs needs a value} && shift ;;
    --keep) keep=1 ;;
    --build) folder=${2:?--build needs a value} && shift ;;
    --no-setup) setup=0 ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  shift
done
for number in "$seconds" "$jobs"; do
  [[ $number =~ ^[1-9][0-9]{0,5}$ ]] || die "'$number' must be a number from 1 to 999999."
done
[[ $seed =~ ^[0-9]{1,9}$ ]] || die "--seed '$seed' must be a number from 0 to 999999999."

if ((setup)); then
  need_root
  need_debian
  install_packages build run ci
  fetch_dpdk_headers
fi
build_targets=(fuzz)
build_tree "$folder" clang --buildtype debugoptimized -Db_sanitize=address,undefined \
  -Db_lundef=false -Dtests=true -Dfuzzing=true -Dcuda=disabled
GRADWIRE_SANITIZE=address,undefined
. "$repo_root/scripts/lib/sanitizers.sh"
# Memory that DPDK keeps until the process ends is no leak.
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0:allocator_may_return_null=1

findings=$folder/findings
grown_inputs=$folder/corpus
same_addresses=()
if ((seed != 0)); then
  grown_inputs=$folder/seeded
  # libFuzzer learns from operands of comparisons, which may be addresses.
  if setarch -R true 2>/dev/null; then
    same_addresses=(setarch -R)
  else
    note "warning: addresses cannot be kept the same here: runs with this seed will differ"
  fi
fi
mkdir -p "$findings"

# fuzz TARGET: its inputs grow in a folder of their own, and without --seed stay for the next time.
fuzz() {
  local target=$1 grown=$grown_inputs/$1
  # Inputs of an earlier run would change a run with the same seed.
  ((seed == 0)) || rm -rf "$grown"
  mkdir -p "$grown"
  "${same_addresses[@]}" "$folder/test/fuzz/fuzz_$target" -seed="$seed" -reload=0 \
    -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -max_len=4096 -len_control=10 \
    -artifact_prefix="$findings/$target-" \
    "$grown" "$repo_root/test/fuzz/corpus/$target" >"$findings/$target.log" 2>&1 </dev/null
}

# keep_inputs TARGET
keep_inputs() {
  local target=$1 corpus=$repo_root/test/fuzz/corpus/$1 least=$folder/least/$1 file
  rm -rf "$least"
  mkdir -p "$least"
  "$folder/test/fuzz/fuzz_$target" -set_cover_merge=1 -max_len=512 "$least" "$corpus" \
    "$grown_inputs/$target" >"$findings/$target.merge.log" 2>&1 </dev/null ||
    die "merging the inputs of $target failed; see $findings/$target.merge.log"
  rm -f "$corpus"/*
  # The longest inputs reach the most code, and a few dozen are enough to begin with.
  find "$least" -type f -printf '%s %p\n' | sort -rn | head -n 64 | while read -r _ file; do
    cp "$file" "$corpus/$(basename "$file" | cut -c1-12).bin"
  done
  note "$target: $(find "$corpus" -type f | wc -l) inputs, $(du -sb "$corpus" | cut -f1) bytes"
}

step "fuzzing: $seconds s each, $jobs at once"
declare -A running=()
failed=()
# reap: waits for one, and says how it went.
reap() {
  local ended status=0 target
  wait -n -p ended "${!running[@]}" || status=$?
  target=${running[$ended]}
  unset "running[$ended]"
  local log=$findings/$target.log last
  last=$(grep -aE '^#[0-9]+' "$log" | tail -n 1 | tr '\t' ' ' | cut -c1-70) || true
  note "$target: $last"
  ((status == 0)) && return 0
  failed+=("$target")
  grep -aE 'not so:|ERROR:|runtime error|Test unit written' "$log" | head -n 5 |
    while read -r line; do note "  $line"; done
  note "  run it again: $folder/test/fuzz/fuzz_$target INPUT; the whole report is in $log"
}
for target in ${targets//,/ }; do
  [[ -d $repo_root/test/fuzz/corpus/$target ]] || die "there is no target '$target'."
  fuzz "$target" &
  running[$!]=$target
  on_exit end_process $!
  ((${#running[@]} < jobs)) || reap
done
while ((${#running[@]} > 0)); do reap; done
if ((keep)); then
  step "keeping the fewest inputs"
  for target in ${targets//,/ }; do keep_inputs "$target"; done
fi
((${#failed[@]} == 0)) || die "found something in: ${failed[*]}"
step "nothing found"
if ((seconds >= 1200)) && [[ $targets == "$all_targets" ]]; then
  last_run_write fuzz "$seconds s a target, seed ${seed/#0/drawn}"
fi
