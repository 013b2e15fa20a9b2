#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The store that carries a job's entries lies: it changes them, repeats old ones, mixes two tables
# or drops what they say of keys. And daemons meet that have no key, another one, or want more. No
# group forms, each rank is told why, by name, and what the store told the truth of still forms.
. "$(dirname "$0")/../_init.sh"

keys=$run_dir/keys
mkdir "$keys"
for name in cluster other; do
  "$gradwire_cli" key make "$keys/$name" >/dev/null || fail "no key is made"
done
# 0 and 1 are joined. 2 has no key, 3 another one, 4 wants more than jobs do.
memif_ring_start 2 --security.key_file "$keys/cluster" || fail "the daemons do not start"
alone() {
  local i=$1
  shift
  daemon_write_config "$i" "net_memif0=10.77.0.$((i + 1))/24,9000"
  daemon_start "$i" --vdev "$(memif_vdev 0 server "$i")" -- "$@"
}
alone 2
alone 3 --security.key_file "$keys/other"
alone 4 --security.key_file "$keys/cluster" --security.mode encrypt --security.minimum encrypt
for i in 2 3 4; do daemon_wait_ready "$i" || fail "daemon $i does not start"; done

lies() {
  # shellcheck disable=SC2046
  "$python" "$hostile/lying_store.py" "$@" $(sockets 5)
}
expect "what the store says is checked, by name" lies --keep "$run_dir/entry"
step "daemon 1 ends, and starts again"
expect_stop 1 TERM
memif_rank_start 1 2 --security.key_file "$keys/cluster"
daemon_wait_ready 1 || fail "daemon 1 does not start again"
expect "the entry of the daemon that ended is refused" lies --ended "$run_dir/entry"
for i in 0 1 2 3 4; do expect_stop "$i" TERM; done
