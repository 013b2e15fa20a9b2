#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two daemons with two links between them: two lanes take one each, a link that loses frames
# changes no bit, and a single lane leaves a link idle, with a warning.
. "$(dirname "$0")/_init.sh"

memif_rails=2
daemon_lanes=2
memif_ring_start 2 --limits.groups 4
expect "sums over both links" "$python" "$repo_root/test/system/sums.py" --twice \
  --sizes 0,1,2223,2225,20017,1000003 $(sockets 2)
for i in 0 1; do
  expect "each link of daemon $i carried its share" "$python" "$repo_root/test/system/status.py" \
    --expect-ports 2 "$(daemon_socket $i)" >"$run_dir/status"
  tail -n 1 "$run_dir/status"
done
expect "one link loses frames" "$gradwire_cli" inject --socket "$(daemon_socket 1)" \
  --port net_memif1 --drop 0.02 --seed 5
expect "the same sums" "$python" "$repo_root/test/system/sums.py" \
  --sizes 2225,20017,1000003 $(sockets 2)
for i in 0 1; do expect_stop $i TERM; done

daemon_lanes=1
memif_ring_start 2
expect "sums over the first link" "$python" "$repo_root/test/system/sums.py" \
  --sizes 1,300001 $(sockets 2)
expect_text "a lane too few for two links is warned of" \
  'warn.*2 networks lead to rank 1, but 1 lanes use only 1 of them' "$(daemon_log 0)"
