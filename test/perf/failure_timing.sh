#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# How soon everybody knows: daemons over memif, clients that sum without pause, and a daemon that is
# killed with -9 at a random moment, again and again. Each survivor's client must have an error that
# names rank, op and silence. Then a daemon that is frozen: for 100 ms, which aborts nothing, and
# for long, which is a death. Prints tables; exit 1 where a client was told wrongly or too late.
. "$(dirname "$0")/../system/_init.sh"

trials=50
ring_sizes="2 3"
bound_ms=2000
frozen_trials=5
usage() {
  cat <<TEXT
usage: $(basename "$0") [--trials N] [--ranks "2 3"] [--frozen-trials N] [--bound-ms MS]
  --trials N         deaths for each number of ranks (default $trials)
  --ranks "N ..."    numbers of ranks (default "$ring_sizes")
  --frozen-trials N  freezes of each kind for each number of ranks (default $frozen_trials)
  --bound-ms MS      until every survivor's client must know (default $bound_ms)
TEXT
}
while (($# > 0)); do
  case $1 in
    --trials) trials=$2 && shift ;;
    --ranks) ring_sizes=$2 && shift ;;
    --frozen-trials) frozen_trials=$2 && shift ;;
    --bound-ms) bound_ms=$2 && shift ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
  shift
done
bound_ms=$((bound_ms * timeout_multiplier))

# clients_start RANKS SECONDS: one of each daemon, in the middle of ops when this returns.
clients_start() {
  rm -f "$run_dir/errors" "$run_dir/until_error.log"
  "$python" "$programs/until_error.py" --out "$run_dir/errors" --seconds "$2" \
    $(sockets "$1") >"$run_dir/until_error.log" 2>&1 &
  client=$!
  eventually 60 grep -q running "$run_dir/until_error.log" ||
    { cat "$run_dir/until_error.log" && fail "no sum got through"; }
  sleep "0.$((RANDOM % 4))$((RANDOM % 10))"
}
clients_end() {
  wait "$client" || { cat "$run_dir/until_error.log" && fail "the clients did not end well"; }
}
error_of() { awk -v r="$1" '$1 == r' "$run_dir/errors"; }
told_ms() { awk -v r="$1" -v t="$2" '$1 == r {printf "%d\n", ($2 - t) / 1e6}' "$run_dir/errors"; }

# survivors_told RANKS VICTIM SINCE_NS: checks each survivor's error; its time goes to the list.
survivors_told() {
  local rank text ms
  for ((rank = 0; rank < $1; rank++)); do
    ((rank != $2)) || continue
    text=$(error_of $rank)
    [[ $text =~ ABORTED.*"rank $2 was silent for ".*", op "[0-9]+ ]] ||
      fail "rank $rank's client was told '$text', not of rank $2, its silence and the op"
    ms=$(told_ms $rank "$3")
    ((ms <= bound_ms)) || fail "rank $rank's client was told after $ms ms, $bound_ms at most"
    printf '%d\n' "$ms" >>"$run_dir/times-$1"
  done
}

# row FILE: count, median, p99 and the most of the numbers in it.
row() {
  sort -n "$1" | awk '{t[NR] = $1} END {
    p = int(NR * 0.99) + 1
    if (p > NR) p = NR
    printf "%d | %d | %d | %d", NR, t[int((NR + 1) / 2)], t[p], t[NR]}'
}

death() {
  local ranks=$1 victim=$((RANDOM % $1)) since
  clients_start "$ranks" 120
  since=$(date +%s%N)
  kill -KILL "${daemon_pids[victim]}"
  clients_end
  survivors_told "$ranks" $victim "$since"
  [[ $(error_of $victim) == *UNAVAILABLE* ]] || fail "the dead daemon's client: $(error_of $victim)"
  told_ms $victim "$since" >>"$run_dir/orphans-$ranks"
  wait "${daemon_pids[victim]}" 2>/dev/null || true
  memif_rank_start $victim "$ranks"
  daemon_wait_ready $victim
}

# freeze RANKS SECONDS
freeze() {
  local victim=$((RANDOM % $1)) since
  clients_start "$1" 3
  since=$(date +%s%N)
  kill -STOP "${daemon_pids[victim]}"
  sleep "$2"
  kill -CONT "${daemon_pids[victim]}"
  clients_end
  if [[ $2 == 0.1 ]]; then
    [[ ! -s $run_dir/errors ]] || fail "a freeze of 100 ms aborted: $(cat "$run_dir/errors")"
  else
    survivors_told "$1" $victim "$since"
  fi
}

for ranks in $ring_sizes; do
  memif_ring_start "$ranks"
  step "$ranks ranks: $trials deaths, every survivor told within $bound_ms ms"
  for ((trial = 0; trial < trials; trial++)); do death "$ranks"; done
  mv "$run_dir/times-$ranks" "$run_dir/deaths-$ranks"
  step "$ranks ranks: $frozen_trials times a daemon stands still for 100 ms, and nothing happens"
  for ((trial = 0; trial < frozen_trials; trial++)); do freeze "$ranks" 0.1; done
  step "$ranks ranks: $frozen_trials times one stands still for 4 s, and is named"
  for ((trial = 0; trial < frozen_trials; trial++)); do freeze "$ranks" 4; done
  mv "$run_dir/times-$ranks" "$run_dir/freezes-$ranks"
  for ((i = 0; i < ranks; i++)); do expect_stop "$i" TERM; done
done

printf '\n| ranks | what | clients told | median ms | p99 ms | most ms |\n'
printf '|---|---|---|---|---|---|\n'
for ranks in $ring_sizes; do
  printf '| %d | daemon killed: survivors | %s |\n' "$ranks" "$(row "$run_dir/deaths-$ranks")"
  printf '| %d | daemon killed: its own client | %s |\n' "$ranks" "$(row "$run_dir/orphans-$ranks")"
  printf '| %d | daemon stopped for 4 s: survivors | %s |\n' "$ranks" \
    "$(row "$run_dir/freezes-$ranks")"
  printf '| %d | daemon stopped for 100 ms | nobody, %d times | | | |\n' "$ranks" "$frozen_trials"
done
