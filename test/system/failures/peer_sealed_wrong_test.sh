#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The peer of peer_sealed_test.sh again, which has the key: in a group that encrypts it sends every
# kind of packet wrong in every field and rightly sealed, and what is right and not true; it loses
# packets, aborts and leaves too early. The daemon drops it, or ends the group, by name, as in a
# group whose packets are not sealed.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_switch.sh"

/usr/bin/python3 -c 'import cryptography' 2>/dev/null || skip "python3-cryptography is missing"
PEER_KEY_FILE=$run_dir/cluster.key
GRADWIRE_SECURITY=encrypt
export PEER_KEY_FILE GRADWIRE_SECURITY
"$gradwire_cli" key make "$PEER_KEY_FILE" >/dev/null || fail "no key is made"
# With a tag, too, a packet carries 1,408 bytes then, which the programs count with.
switch_mtu=1536
switch_make --transport.exchange_kib 4 --transport.source_ports 32 --timeouts.silence_ms 20000 \
  --security.key_file "$PEER_KEY_FILE"
peer() {
  ip netns exec "$outsider" "$python" "$hostile/peer_$1.py" gw0 $(sockets 2)
}

expect "every kind of packet wrong in every field is dropped by name" peer wrong
expect "what is right and not true ends its group by name" peer lies
expect "lost packets, aborts, calls that differ, byes too early" peer faults
step "daemon 1 was told to stop"
eventually 20 daemon_gone 1 || fail "daemon 1 does not leave"
wait "${daemon_pids[1]}" || fail "daemon 1 left with status $?"
expect_stop 0 TERM
