#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two daemons with two links between them: two lanes take one each, a link that loses frames
# changes no bit, and a single lane leaves a link idle, with a warning. Of three daemons with two
# links from each to the next, one link is cut: the lane that it is the first of goes by the other
# and comes back, and so do ops in one hop, which take no ring. Then it is cut one way.
. "$(dirname "$0")/../_init.sh"

memif_rails=2
daemon_lanes=2
memif_ring_start 2 --limits.groups 4
expect "sums over both links" "$python" "$programs/sums.py" --twice \
  --sizes 0,1,2223,2225,20017,1000003 $(sockets 2)
for i in 0 1; do
  expect "each link of daemon $i carried its share" "$python" "$programs/status.py" \
    --expect-ports 2 "$(daemon_socket $i)" >"$run_dir/status"
  tail -n 1 "$run_dir/status"
done
expect "one link loses frames" "$gradwire_cli" inject --socket "$(daemon_socket 1)" \
  --port net_memif1 --drop 0.02 --seed 5
expect "the same sums" "$python" "$programs/sums.py" \
  --sizes 2225,20017,1000003 $(sockets 2)
for i in 0 1; do expect_stop $i TERM; done

daemon_lanes=1
memif_ring_start 2
expect "sums over the first link" "$python" "$programs/sums.py" \
  --sizes 1,300001 $(sockets 2)
expect_text "a lane too few for two links is warned of" \
  'warn.*2 networks lead to rank 1, but 1 lanes use only 1 of them' "$(daemon_log 0)"
for i in 0 1; do expect_stop $i TERM; done

daemon_lanes=2
silence_ms=2000 # a path's limit is a quarter of it
memif_ring_start 3 --timeouts.silence_ms "$silence_ms"
# One end of their first link: daemon 1's loses what daemon 0 sends, daemon 0's what daemon 1 sends.
lose() { printf '%q inject --socket %q --port %s' "$gradwire_cli" "$(daemon_socket "$1")" "$2"; }
ahead=$(lose 1 net_memif1)
back=$(lose 0 net_memif0)
during() {
  # shellcheck disable=SC2046
  "$python" "$programs/rails_cut.py" --cuts 1 \
    --still "$((silence_ms / 1000))" --hosts 1 "$@" $(sockets 3)
}
# Data goes round the ring from daemon 0 to 1. Of what daemon 1 sends to daemon 0 nothing belongs to
# the ring, so only its own move brings it there.
expect "a link is cut during small ops" during --bytes 1000 --off-ring 1 \
  --cut "$ahead --drop 1 && $back --drop 1" --mend "$ahead --clear && $back --clear"
expect "one way of it is cut during large ones" during --bytes $((16 << 20)) \
  --cut "$ahead --drop 1" --mend "$ahead --clear"
expect_text "daemon 0 says which port its lane left" \
  'warn.*lane 0 leaves port net_memif0: rank 1 .10.77.0.2. is silent there' "$(daemon_log 0)"
expect_text "and that it took it again" 'lane . takes port net_memif0 again: rank 1' \
  "$(daemon_log 0)"
for i in 0 1 2; do expect_stop $i TERM; done
