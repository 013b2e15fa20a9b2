#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# gradwire-perf through real daemons, every element compared with its own reference: the column
# #wrong is 0 on every rank, for every size.
. "$(dirname "$0")/../_init.sh"

# run NAME RANKS MEMBERS OPTION...
run() {
  local name=$1 ranks=$2 members=$3 rank member
  shift 3
  mkdir "$run_dir/$name"
  for ((rank = 0; rank < ranks; rank++)); do
    for ((member = 0; member < members; member++)); do
      background "$name-$rank-$member" "$gradwire_perf" --socket "$(daemon_socket $rank)" \
        --rank $rank --nranks "$ranks" --member $member --members "$members" \
        --rendezvous "$run_dir/$name" --check \
        --json "$run_dir/$name-$rank-$member.json" "$@"
    done
  done
  for ((rank = 0; rank < ranks; rank++)); do
    for ((member = 0; member < members; member++)); do
      expect_ended "$name: rank $rank member $member" "$name-$rank-$member"
      "$python" -c "
import json, sys
wrong = [size['wrong'] for size in json.load(open(sys.argv[1]))['results']]
sys.exit(len(wrong) < 3 or any(count != 0 for count in wrong))" \
        "$run_dir/$name-$rank-$member.json" ||
        { cat "$run_dir/$name-$rank-$member.out" && fail "$name: #wrong is not 0 everywhere"; }
    done
  done
  sed 's/^/       /' "$run_dir/$name-0-0.out"
}

memif_ring_start 3
run fp32-sum 3 1 -b 4 -e 4M -f 32 -n 5 -w 1
run bf16-avg 3 2 -b 2 -e 512K -f 64 -n 5 -w 1 -d bf16 -o avg --in-place
run int8-max 3 1 -b 1 -e 256K -f 64 -n 5 -w 1 -d int8 -o max
