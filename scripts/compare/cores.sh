# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What is known of the cores that scripts/compare.sh measures on: how far they are from each other,
# what their threads' wake-ups cost, who else used them. Into the folder of the run, for report.py.

# build_core_programs: $cores_program and $wakes_program, or nothing if they cannot be built.
build_core_programs() {
  cores_program=$build/compare-core_distance
  build_core_program core_distance "$cores_program" || cores_program=
  wakes_program=$build/compare-wake_cost
  build_core_program wake_cost "$wakes_program" || wakes_program=
}

# build_core_program NAME PROGRAM
build_core_program() {
  local source=$repo_root/scripts/compare/$1.cc
  [[ -x $2 && $2 -nt $source ]] && return 0
  g++ -O2 -std=c++20 -pthread -o "$2" "$source" >"$run_dir/cores.log" 2>&1 || {
    note "$1 is not measured: $(tail -n 1 "$run_dir/cores.log")"
    return 1
  }
}

# measure_cores: how far the first two cores are from each other now, into cores_ns (empty if it
# cannot be measured), and all that was seen, a line for each 20 ms, into cores.txt.
cores_ns=
measure_cores() {
  cores_ns=
  [[ $link != hosts && -x ${cores_program:-} ]] || return 0
  local seen
  seen=$("$cores_program" "${core[0]}" "${core[1]}" 0.3) || return 0
  printf '%s\n' "$seen" >>"$run_dir/runs/cores.txt"
  cores_ns=$(sort -n <<<"$seen" | awk '{ at[NR] = $1 } END { print at[int((NR + 1) / 2)] }')
}

# await_cores: until the cores are as near each other as they mostly were in this run, or for 20 s:
# a row that runs on other cores cannot be compared, and the report leaves it out.
await_cores() {
  local tries
  for ((tries = 0; tries < 10; tries++)); do
    measure_cores
    [[ -n $cores_ns ]] || return 0
    sort -n "$run_dir/runs/cores.txt" | awk -v now="$cores_ns" '
      { at[NR] = $1 }
      END { exit now <= 1.35 * at[int((NR + 3) / 4)] ? 0 : 1 }' && return 0
    sleep 2
  done
}

# measure_wakes: what two threads of the first core need to wake each other, for a bar of --beside.
measure_wakes() {
  [[ -n $beside && -x ${wakes_program:-} ]] || return 0
  "$wakes_program" "${core[0]}" 0.1 >>"$run_dir/runs/wakes.txt" || true
}

# cpu_times: of the two cores together, what /proc/stat counted: all, idle, stolen by the host.
cpu_times() {
  awk -v a="cpu${core[0]}" -v b="cpu${core[1]}" '
    $1 == a || $1 == b {
      for (i = 2; i <= 9; i++) all += $i
      idle += $5 + $6
      stolen += $9
    }
    END { print all, idle, stolen }' /proc/stat
}

# measure_others: which share of the two cores is taken while nothing of this script runs.
measure_others() {
  [[ $link != hosts ]] || return 0
  local before after
  read -ra before < <(cpu_times)
  sleep 0.3
  read -ra after < <(cpu_times)
  awk -v all=$((after[0] - before[0])) -v idle=$((after[1] - before[1])) \
    'BEGIN { print (all > 0 ? 1 - idle / all : 0) }' >>"$run_dir/runs/others.txt"
}
