#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Somebody holds the cable between two daemons and has no key. He forges packets of every type,
# replays, reorders, cuts, reflects and changes them, plays them to other epochs and to a daemon
# that was started again, floods, and greets in a rank's name. Whatever he does is counted by its
# reason, changes nothing, and the group's sums are right; in both modes.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_switch.sh"

key=$run_dir/cluster.key
"$gradwire_cli" key make "$key" >/dev/null || fail "no key is made"
# Frames go by a program in Python: nobody shall take that for a rank's death.
flags=(--security.key_file "$key")
patient=(--timeouts.silence_ms 20000)
ring=("${patient[@]}" --transport.tiles never)
tiles=("${patient[@]}" --transport.tiles always --transport.exchange_kib 0)
switch_make "${flags[@]}" "${ring[@]}"
for host in h0 h1; do ip -n "gw$$s" link set "$host" nomaster; done
attacks() {
  # shellcheck disable=SC2046
  ip netns exec "gw$$s" "$python" "$hostile/attacks.py" h0 h1 $(sockets 2) "$@"
}
# again INDEX FLAG...: the daemon is killed, and starts again.
again() {
  local i=$1
  shift
  kill -KILL "${daemon_pids[i]}"
  wait "${daemon_pids[i]}" 2>/dev/null || true
  daemon_start "$i" --vdev net_af_packet0,iface=gw0,blocksz=65536,framesz=2048,framecnt=512 -- \
    "${flags[@]}" "$@"
  daemon_wait_ready "$i" || fail "daemon $i does not start again"
}

expect "attacks on a group that authenticates, whose ops go by the ring" \
  attacks --mode authenticate --capture "$run_dir/session"
step "daemon 1 is killed, and starts again"
again 1 "${ring[@]}"
expect "the session from before, played to both" \
  attacks --mode authenticate --epoch 10 --replay "$run_dir/session"

step "both start again"
for i in 0 1; do again "$i" "${tiles[@]}"; done
expect "attacks on a group that encrypts, whose ops go by tiles" \
  attacks --mode encrypt --tiles --capture "$run_dir/session"
step "daemon 1 is killed, and starts again"
again 1 "${tiles[@]}"
expect "the session from before, played to both" \
  attacks --mode encrypt --tiles --epoch 10 --replay "$run_dir/session"
step "both start again"
for i in 0 1; do again "$i" --timeouts.silence_ms 3000; done
expect "neither lives on by what is played and forged in its name" \
  attacks --mode encrypt --epoch 20 --silence
expect_stop 1 TERM
expect_stop 0 TERM
