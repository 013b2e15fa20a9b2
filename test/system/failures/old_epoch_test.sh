#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A daemon is killed while packets of its group are still on their way to the other one (whose port
# holds them back on purpose). It starts again, and its rank joins under a new epoch. Then the old
# packets arrive: each is counted and dropped, and every sum of the new epoch has the right bits.
. "$(dirname "$0")/../_init.sh"

memif_ring_start 2
# Until then daemon 1 has started again and joined, which takes a second or two alone.
held_s=$((12 * timeout_multiplier))
expect "some of what daemon 0 receives is held back for $held_s seconds" \
  "$gradwire_cli" inject --socket "$(daemon_socket 0)" --delay 0.05 \
  --delay-us "$((held_s * 1000000))"
step "sums in epoch 1, until packets of it are held back"
background first "$python" "$hostile/old_epoch.py" --group 4711 --epoch 1 --hold \
  $(sockets 2)
eventually 30 grep -q holding "$run_dir/first.out" ||
  { cat "$run_dir/first.out" && fail "nothing is held back"; }
step "daemon 1 is killed, and starts again"
kill -KILL "${daemon_pids[1]}"
"$gradwire_cli" inject --socket "$(daemon_socket 0)" --clear
wait "${daemon_pids[1]}" 2>/dev/null || true
memif_rank_start 1 2
daemon_wait_ready 1 || fail "daemon 1 does not start again"
expect_ended "epoch 1 ended with an error" first
expect "epoch 2 sums while the packets of epoch 1 arrive, and every one of them is dropped" \
  "$python" "$hostile/old_epoch.py" --group 4711 --epoch 2 $(sockets 2)
expect_stop 1 TERM
expect_stop 0 TERM
