#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Looks for tests that fail by chance: runs the suites again and again, each time under other
# conditions that must not matter.
. "$(dirname "$0")/lib/setup.sh"
. "$repo_root/scripts/lib/last_run.sh"

usage() {
  cat <<TEXT
scripts/flaky.sh [--runs N] [--system-runs N] [--seed S] [--folder FOLDER] [--commit COMMIT]

Clones the last commit to three places (a short path; one with spaces, below a folder that only its
owner may enter; one of 150 characters), builds each clone, and runs the suites fast, sim and fuzz N
times and the suite system N times. Each run draws its conditions from the seed:

  tree      which of the clones
  busy      0 to 3 processes that only burn CPU beside it
  cores     all, or one
  perturb   MALLOC_PERTURB_: what fresh and freed memory holds
  aslr      addresses drawn at random, or always the same
  seed      GRADWIRE_TEST_SEED, from which tests draw their inputs, and Python's hash seed

Secrets and hashes of daemons differ in each run as they always do. A failure is kept with its
conditions, its log and the command that runs it again. Takes hours: some 5 minutes a run. Run it as
root on a machine that has nothing else to do.

  --runs N         runs of fast, sim and fuzz; default 20
  --system-runs N  runs of system; default 5
  --seed S         the seed; default one drawn now, which is printed
  --folder FOLDER  where clones and logs go; default /var/tmp/gradwire-flaky
  --commit COMMIT  what to test; default HEAD
  --no-setup       do not install packages or reserve hugepages
  --help           this text

Exit status: 0 if no test failed.
TEXT
}

runs=20 system_runs=5 seed=$((RANDOM * 32768 + RANDOM)) folder=/var/tmp/gradwire-flaky commit=HEAD
setup=1
while (($# > 0)); do
  case $1 in
    --runs) runs=${2:?--runs needs a value} && shift ;;
    --system-runs) system_runs=${2:?--system-runs needs a value} && shift ;;
    --seed) seed=${2:?--seed needs a value} && shift ;;
    --folder) folder=${2:?--folder needs a value} && shift ;;
    --commit) commit=${2:?--commit needs a value} && shift ;;
    --no-setup) setup=0 ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  shift
done
need_numbers "$runs" "$system_runs" "$seed"
commit=$(git -C "$repo_root" rev-parse "$commit^{commit}") || die "there is no commit '$commit'."

need_root
if ((setup)); then
  need_debian
  install_packages build run train check observe
  fetch_dpdk_headers
  reserve_hugepages "$test_hugepages"
  mount_hugetlbfs
fi

mkdir -p "$folder/logs" "$folder/closed folder"
# The programs of other users that a story starts do not get through here.
chmod 700 "$folder/closed folder"
long=$(printf 'a-long-path-%.0s' {1..12})
trees=("$folder/t" "$folder/closed folder/a clone" "$folder/${long:0:120}/${long:0:30}")
for tree in "${trees[@]}"; do
  step "clone: $tree"
  if [[ ! -d $tree ]]; then
    mkdir -p "$(dirname "$tree")"
    git clone -q --no-local "$repo_root" "$tree"
  fi
  git -C "$tree" fetch -q "$repo_root" "$commit"
  git -C "$tree" checkout -q --detach "$commit"
  build_tree "$tree/build" gcc --buildtype debugoptimized -Db_sanitize=none -Dtests=true \
    -Dcuda=disabled
done

# draw N: a number below N, from the seed.
draw() { drawn=$((RANDOM % $1)); }

all_cpus=$(awk '/^Cpus_allowed_list:/ {print $2}' /proc/self/status)
one_cpu=${all_cpus%%[-,]*}
cannot_keep_addresses=0
setarch -R true 2>/dev/null || {
  cannot_keep_addresses=1
  note "warning: addresses cannot be kept the same here: ASLR is on in every run"
}

# burn COUNT SECONDS: processes that only burn CPU, in $burners; each ends by itself.
burners=()
burn() {
  local i
  burners=()
  for ((i = 0; i < $1; i++)); do
    timeout "$2" "$python" -c 'while True: pass' &
    burners+=($!)
    on_exit end_process $!
  done
}

failed=0
# one_run NUMBER SUITE...: draws the conditions, runs the suites, and keeps what failed.
one_run() {
  local number=$1 tree cores perturb addresses=() suites=() says suite log status=0
  shift
  for suite in "$@"; do suites+=(--suite "$suite"); done
  draw 3 && tree=${trees[drawn]}
  draw 4 && local busy=$drawn
  draw 3 && cores=$all_cpus
  ((drawn)) || cores=$one_cpu
  draw 256 && perturb=$drawn
  draw 2
  ((drawn || cannot_keep_addresses)) || addresses=(setarch -R)
  draw 32768 && local inputs=$drawn
  says="tree ${tree#"$folder"/} busy $busy cores $cores perturb $perturb"
  says+=" aslr $([[ ${addresses[*]} ]] && echo off || echo on) seed $inputs"
  step "run $number: $*: $says"
  burn "$busy" 3600
  log=$folder/logs/$number.out
  MALLOC_PERTURB_=$perturb GRADWIRE_TEST_SEED=$inputs PYTHONHASHSEED=$inputs \
    with_progress 120 "$log" "run $number" taskset -c "$cores" "${addresses[@]}" \
    meson test -C "$tree/build" --no-rebuild "${suites[@]}" --print-errorlogs \
    --logbase "flaky-$number" || status=$?
  for suite in "${burners[@]}"; do end_process "$suite"; done
  printf '%s %s: %s: status %s\n' "$number" "$*" "$says" "$status" >>"$folder/logs/runs"
  ((status)) || return 0
  failed=$((failed + 1))
  "$python" "$repo_root/scripts/lib/count_tests.py" \
    "$tree/build/meson-logs/flaky-$number.json" || true
  cp "$tree/build/meson-logs/flaky-$number.txt" "$folder/logs/"
  note "conditions: $says; the whole output: $log"
}

: >"$folder/logs/runs"
RANDOM=$((seed % 32768))
step "seed $seed: $runs runs of fast, sim and fuzz, $system_runs of system"
for ((run = 1; run <= runs; run++)); do one_run "$run" fast sim fuzz; done
for ((run = 1; run <= system_runs; run++)); do one_run "system-$run" system; done
step "$((runs + system_runs)) runs, $failed with failures; seed $seed; $folder/logs/runs lists them"
((failed == 0)) || exit 1
if ((runs >= 20 && system_runs >= 5)); then
  last_run_write flaky "$runs runs of fast, sim and fuzz, $system_runs of system, seed $seed"
fi
