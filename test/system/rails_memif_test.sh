#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two daemons with two links between them: two lanes take one each, a link that loses frames
# changes no bit, and a single lane leaves a link idle, with a warning. Of three daemons with two
# links from each to the next, one link is cut one way: the lane that it is the first of goes by the
# other and comes back, and so do ops in one hop, which take no ring.
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
for i in 0 1; do expect_stop $i TERM; done

daemon_lanes=2
silence_ms=2000 # a path's limit is a quarter of it
memif_ring_start 3 --timeouts.silence_ms "$silence_ms"
# What daemon 0 sends to daemon 1 by their first link.
inject=("$gradwire_cli" inject --socket "$(daemon_socket 1)" --port net_memif1)
during() {
  # shellcheck disable=SC2046
  "$python" "$repo_root/test/system/rails_cut.py" --cuts 1 --cut "${inject[*]} --drop 1" \
    --mend "${inject[*]} --clear" --still "$(awk "BEGIN {print 2 * $silence_ms / 4 / 1000}")" \
    --hosts 1 "$@" $(sockets 3)
}
expect "one way of a link is cut during small ops" during --bytes 1000 --off-ring 1
expect "and during large ones" during --bytes $((16 << 20))
expect_text "daemon 0 says which port its lane left" \
  'warn.*lane 0 leaves port net_memif0: rank 1 .10.77.0.2. is silent there' "$(daemon_log 0)"
expect_text "and that it took it again" 'lane . takes port net_memif0 again: rank 1' \
  "$(daemon_log 0)"
for i in 0 1 2; do expect_stop $i TERM; done
