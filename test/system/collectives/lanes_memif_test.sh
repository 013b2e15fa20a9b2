#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Daemons of two lanes, and of four: each lane has a queue pair of its own on the memif link, and
# its share of every op's chunks. Sums have the reference's bits, at counts that leave some lanes
# nothing, one element, or a short last chunk.
. "$(dirname "$0")/../_init.sh"

# 8,896 bytes are 2,224 elements of fp32: a chunk.
sizes=0,1,15,17,2223,2224,2225,4448,4449,8897,20017,100003,1000003
for daemon_lanes in 2 4; do
  # Mempools for few groups: there are as many sets of them as lanes.
  memif_ring_start 2 --limits.groups 4
  expect_text "$daemon_lanes lanes" "ready: .* $daemon_lanes lanes" "$(daemon_log 0)"
  expect "sums on $daemon_lanes lanes" "$python" "$programs/sums.py" --twice \
    --sizes "$sizes" $(sockets 2)
  for i in 0 1; do
    expect "each lane of daemon $i had its share" "$python" "$programs/status.py" \
      --expect-lanes "$daemon_lanes" "$(daemon_socket $i)" >"$run_dir/status"
    tail -n 1 "$run_dir/status"
  done
  expect "two members of each rank, averages of bf16" "$python" "$programs/sums.py" \
    --members 2 --datatype bf16 --redop avg --sizes "$sizes" $(sockets 2)
  for i in 0 1; do expect_stop $i TERM; done
done

daemon_lanes=2
memif_ring_start 3 --limits.groups 4
expect "three ranks on two lanes, minima of int8" "$python" "$programs/sums.py" \
  --datatype int8 --redop min --sizes "$sizes" $(sockets 3)
for i in 0 1 2; do expect_stop $i TERM; done

# A daemon of one lane joins only the first queue of the other's two. The lane without a queue takes
# nothing from the first one, so nothing is foreign, and nothing has to be sent again.
daemon_lanes=2
memif_rank_start 0 2 --limits.groups 4
daemon_lanes=1
memif_rank_start 1 2 --limits.groups 4
for i in 0 1; do daemon_wait_ready $i || fail "daemon $i does not start"; done
told() { grep -q 'warn.*net_memif0: the memif peer joins 1 of 2 queue pairs' "$(daemon_log 0)"; }
eventually 10 told || fail "nobody is told that a lane has no queue"
"$gradwire_cli" ports --socket "$(daemon_socket 0)" >"$run_dir/ports"
expect_text "the status shows it" 'net_memif0 .* 1 of 2 ' "$run_dir/ports"
expect "sums of two lanes with one" "$python" "$programs/sums.py" --twice \
  --sizes "$sizes" $(sockets 2)
"$gradwire_cli" counters --socket "$(daemon_socket 0)" >"$run_dir/counters"
if grep -E '^lane\.1\.(rx_packets|drops\.[a-z_]+) [1-9]' "$run_dir/counters"; then
  fail "the lane without a queue took packets from another lane's"
fi
for i in 0 1; do expect_stop $i TERM; done

# The other way round the driver refuses the client.
daemon_lanes=1
memif_rank_start 0 2
daemon_lanes=2
memif_rank_start 1 2
for i in 0 1; do daemon_wait_ready $i || fail "daemon $i does not start"; done
told() {
  grep -q 'warn.*net_memif0: the memif server at .* does not take this end with its 2' \
    "$(daemon_log 1)"
}
eventually 20 told || fail "nobody is told that the server refuses the link"
