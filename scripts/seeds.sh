#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the simulator on seeds that nobody has tuned to: ranges drawn anew for each profile.
. "$(dirname "$0")/lib/setup.sh"

all_profiles=mixed,all-reduce,clean,loss,pause,cut,crash,dry,late,one-sided,death,crowd,calls,lanes
all_profiles+=,users,rails,fabric,tiles,pairs
usage() {
  cat <<TEXT
scripts/seeds.sh [--minutes N] [--profiles LIST] [--sealed] [--chunk N] [--seed S]
                 [--folder FOLDER] [--sim PROGRAM]

Draws a range of seeds for each profile, runs the profiles by turns, on each core one, until the
time is over, and prints a table of what ran. A seed that fails is written to FOLDER/failed with the
command that plays it again, and its trace to FOLDER/PROFILE-SEED.trace; the others go on.

  --minutes N      default 60
  --profiles LIST  comma-separated; default all: gradwire-sim --help tells what each is about
  --sealed         only seeds whose packets are sealed, about one of four of each range
  --chunk N        seeds of a profile in its turn; default 200
  --seed S         from which the ranges are drawn; default one drawn now, which is printed
  --folder FOLDER  default /var/tmp/gradwire-seeds
  --sim PROGRAM    gradwire-sim; default that of build/, which is built first
  --help           this text

Exit status: 0 if no seed failed.
TEXT
}

minutes=60 profiles=$all_profiles chunk=200 seed=$((RANDOM * 32768 + RANDOM))
folder=/var/tmp/gradwire-seeds sim= only=()
while (($# > 0)); do
  case $1 in
    --minutes) minutes=${2:?--minutes needs a value} && shift ;;
    --profiles) profiles=${2:?--profiles needs a value} && shift ;;
    --sealed) only=(--sealed) ;;
    --chunk) chunk=${2:?--chunk needs a value} && shift ;;
    --seed) seed=${2:?--seed needs a value} && shift ;;
    --folder) folder=${2:?--folder needs a value} && shift ;;
    --sim) sim=${2:?--sim needs a value} && shift ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  shift
done
need_numbers "$minutes" "$chunk" "$seed"
if [[ -z $sim ]]; then
  build_targets=(gradwire-sim)
  build_tree "$repo_root/build" gcc --buildtype debugoptimized -Db_sanitize=none -Dtests=true
  sim=$repo_root/build/app/gradwire-sim/gradwire-sim
fi
mkdir -p "$folder"
rm -f "$folder"/*.trace "$folder"/*.out "$folder/failed" "$folder/runs"
: >"$folder/failed"
: >"$folder/runs"

# Far from the seeds that tests have, which begin at 1.
RANDOM=$((seed % 32768))
declare -A next
for profile in ${profiles//,/ }; do
  next[$profile]=$((1000000000 + (RANDOM << 30 | RANDOM << 15 | RANDOM)))
done

# turn PROFILE FIRST: one chunk of one profile.
turn() {
  local profile=$1 first=$2 last=$(($2 + chunk - 1)) out=$folder/$1-$2.out failed number ran
  "$sim" --profile "$profile" --seeds "$first..$last" "${only[@]}" --keep-going >"$out" 2>&1 || true
  failed=$(grep -c '^seed [0-9]* FAILED' "$out" || true)
  # A program that ends before its last line has met an assertion.
  ran=$(sed -n "s/^profile $profile: \([0-9]*\) seeds.*/\1/p" "$out")
  if [[ -z $ran ]]; then
    ran=0
    failed=$((failed + 1))
    printf '%s %s..%s ended early: %s\n' "$profile" "$first" "$last" "$(tail -n 1 "$out")" \
      >>"$folder/failed"
  fi
  printf '%s %s %s %s %s\n' "$profile" "$first" "$last" "$failed" "$ran" >>"$folder/runs"
  { grep '^seed [0-9]* FAILED' "$out" || true; } | while read -r _ number text; do
    printf '%s --profile %s --seeds %s --trace: %s\n' gradwire-sim "$profile" "$number" "$text" \
      >>"$folder/failed"
    "$sim" --profile "$profile" --seeds "$number" --trace >"$folder/$profile-$number.trace" 2>&1 ||
      true
  done
  ((failed > 0)) || rm -f "$out"
}

step "seed $seed: ${profiles//,/ }, $minutes minutes, $chunk seeds in a turn${only:+, sealed ones}"
end=$((SECONDS + minutes * 60))
while ((SECONDS < end)); do
  for profile in ${profiles//,/ }; do
    ((SECONDS < end)) || break
    while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n || true; done
    turn "$profile" "${next[$profile]}" &
    next[$profile]=$((next[$profile] + chunk))
  done
done
wait

step "$(date -u +%F), commit $(git -C "$repo_root" rev-parse --short HEAD), seed $seed"
printf '| profile | seeds | how many | failed |\n|---|---|---|---|\n'
sort -k1,1 -k2,2n "$folder/runs" | awk '
  $1 != name && name != "" {printf "| %s | %s to %s | %d | %d |\n", name, first, last, n, bad}
  $1 != name {name = $1; first = $2; n = bad = 0}
  {last = $3; n += $5; bad += $4}
  END {printf "| %s | %s to %s | %d | %d |\n", name, first, last, n, bad}'
if [[ -s $folder/failed ]]; then
  cat "$folder/failed"
  die "seeds failed; traces are in $folder."
fi
