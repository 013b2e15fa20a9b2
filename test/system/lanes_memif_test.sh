#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Daemons of two lanes, and of four: each lane has a queue pair of its own on the memif link, and
# its share of every op's chunks. Sums have the reference's bits, at counts that leave some lanes
# nothing, one element, or a short last chunk.
. "$(dirname "$0")/_init.sh"

# 8,896 bytes are 2,224 elements of fp32: a chunk.
sizes=0,1,15,17,2223,2224,2225,4448,4449,8897,20017,100003,1000003
for daemon_lanes in 2 4; do
  # Mempools for few groups: there are as many sets of them as lanes.
  memif_ring_start 2 --limits.groups 4
  expect_text "$daemon_lanes lanes" "ready: .* $daemon_lanes lanes" "$(daemon_log 0)"
  expect "sums on $daemon_lanes lanes" "$python" "$repo_root/test/system/sums.py" --twice \
    --sizes "$sizes" $(sockets 2)
  for i in 0 1; do
    expect "each lane of daemon $i had its share" "$python" "$repo_root/test/system/status.py" \
      --expect-lanes "$daemon_lanes" "$(daemon_socket $i)" >"$run_dir/status"
    tail -n 1 "$run_dir/status"
  done
  expect "two members of each rank, averages of bf16" "$python" "$repo_root/test/system/sums.py" \
    --members 2 --datatype bf16 --redop avg --sizes "$sizes" $(sockets 2)
  for i in 0 1; do expect_stop $i TERM; done
done

daemon_lanes=2
memif_ring_start 3 --limits.groups 4
expect "three ranks on two lanes, minima of int8" "$python" "$repo_root/test/system/sums.py" \
  --datatype int8 --redop min --sizes "$sizes" $(sockets 3)
