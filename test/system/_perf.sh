# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# gradwire-perf through the daemons of a story, for stories that source it after _init.sh.

# perf RANKS MEMBERS OPTION...: on every member, with each result compared with the reference. What
# the first one printed is in $run_dir/perf$perf_runs-0-0.out.
perf_runs=0
perf() {
  local ranks=$1 members=$2 rank member names=() name failed=
  shift 2
  perf_runs=$((perf_runs + 1))
  mkdir -p "$run_dir/meet$perf_runs"
  for ((rank = 0; rank < ranks; rank++)); do
    for ((member = 0; member < members; member++)); do
      name=perf$perf_runs-$rank-$member
      names+=("$name")
      background "$name" "$gradwire_perf" --socket "$(daemon_socket "$rank")" --rank "$rank" \
        --nranks "$ranks" --member "$member" --members "$members" -n 3 -w 1 --check \
        --rendezvous "$run_dir/meet$perf_runs" "$@"
    done
  done
  step "gradwire-perf, $ranks ranks of $members: $*"
  for name in "${names[@]}"; do ended "$name" || failed+=" $name"; done
  [[ -n $failed ]] || return 0
  # Why one failed another one may know.
  for name in "${names[@]}"; do printf -- '--- %s\n' "$name" && tail -n 5 "$run_dir/$name.out"; done
  fail "gradwire-perf $*:$failed"
}
