#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Somebody else's daemon with the cluster's key: the peer in Python of test/peer, written from
# doc/security.md and doc/protocol alone, is a rank of groups with real daemons whose packets are
# sealed, in both modes. If a formula of the page is not that of the code, this story fails.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_switch.sh"

/usr/bin/python3 -c 'import cryptography' 2>/dev/null || skip "python3-cryptography is missing"
PEER_KEY_FILE=$run_dir/cluster.key
export PEER_KEY_FILE
"$gradwire_cli" key make "$PEER_KEY_FILE" >/dev/null || fail "no key is made"
# The peer is slow, and whoever else runs here makes it slower: nobody shall take it for dead.
switch_make --transport.exchange_kib 4 --transport.source_ports 32 --timeouts.silence_ms 20000 \
  --security.key_file "$PEER_KEY_FILE"
peer() {
  GRADWIRE_SECURITY=$1 ip netns exec "$outsider" "$python" "$hostile/peer_sealed.py" gw0 \
    $(sockets 2)
}

expect "groups of the peer and daemons that authenticate" peer authenticate
expect "groups of the peer and daemons that encrypt" peer encrypt
expect_stop 1 TERM
expect_stop 0 TERM
