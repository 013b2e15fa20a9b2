#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs jobs without end on two daemons over a memif link that loses 0.1 % of all packets, and kills
# clients at random. Every result must have the reference's bits, memory must not grow, and in the
# end all mbufs must be free.
. "$(dirname "$0")/../test/system/_init.sh"
. "$repo_root/scripts/lib/last_run.sh"

minutes=30
seed=$((RANDOM * 32768 + RANDOM))
loss=0.001
slots=2
usage() {
  cat <<TEXT
scripts/soak.sh [--minutes M] [--seed N] [--loss P] [--jobs N]
  --minutes M  how long to run; default $minutes
  --seed N     seed of jobs, kills and losses; default: random, and printed
  --loss P     share of received packets to drop; default $loss
  --jobs N     how many jobs at a time; default $slots
Needs root, hugepages and a build (GRADWIRE_BUILD, default build).
TEXT
}
while (($# > 0)); do
  case $1 in
    --minutes) minutes=${2:-} && shift ;;
    --seed) seed=${2:-} && shift ;;
    --loss) loss=${2:-} && shift ;;
    --jobs) slots=${2:-} && shift ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && exit 2 ;;
  esac
  (($# > 0)) && shift
done

# mbufs_free INDEX: of each lane's mempool.
mbufs_free() {
  "$gradwire_cli" status --json --socket "$(daemon_socket "$1")" |
    "$python" -c 'import json, sys
print([lane["packet_mbufs_free"] for lane in json.load(sys.stdin)["lanes"]])'
}
mbufs_home() { [[ $(mbufs_free "$1") == "${free_before[$1]}" ]]; }

memif_ring_start 2 --faults.drop "$loss" --faults.seed "$seed"
eventually 10 grep -q 'link is up' "$(daemon_log 0)" || true
sleep 1
free_before=()
for i in 0 1; do free_before[i]=$(mbufs_free $i); done
step "$minutes minutes of jobs at a loss of $loss, seed $seed"
mkdir "$run_dir/jobs"
status=0
"$python" "$repo_root/test/soak/soak.py" --minutes "$minutes" --seed "$seed" --slots "$slots" \
  --folder "$run_dir/jobs" $(sockets 2) || status=$?
((status == 0)) || fail "seed $seed: something was wrong"
for i in 0 1; do
  expect "daemon $i lives" daemon_alive $i
  step "daemon $i's mbufs are home: ${free_before[i]} free"
  eventually 10 mbufs_home $i ||
    fail "daemon $i lost mbufs: ${free_before[i]} were free before, now $(mbufs_free $i)"
  expect "daemon $i has no client and no group left" eventually 10 \
    "$python" "$programs/status.py" --expect-no-clients "$(daemon_socket $i)"
  "$gradwire_cli" status --socket "$(daemon_socket $i)" | grep -A1 '^FAULTS'
done
expect_stop 1 TERM
expect_stop 0 TERM
step "nothing was wrong"
[[ $minutes != 30 ]] || last_run_write soak "$minutes minutes, loss $loss, seed $seed"
