#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A hundred groups for transfers alone between two daemons: they carry what is sent, send nothing
# while nobody waits, have no ops, a bound of their own by user, and end by name. Then the other
# daemon dies while one of them waits for it.
. "$(dirname "$0")/../_init.sh"

limits=(--limits.groups 4 --limits.transfer_groups 128 --limits.user_transfer_groups 100)
step "two daemons"
memif_ring_start 2 "${limits[@]}"
# shellcheck disable=SC2046
expect "a hundred groups" "$python" "$programs/transfer_groups.py" $(sockets 2)

step "sealed"
expect_stop 0 TERM
expect_stop 1 TERM
"$gradwire_cli" key make "$run_dir/cluster.key"
memif_ring_start 2 "${limits[@]}" \
  --security.mode encrypt --security.key_file "$run_dir/cluster.key"
# shellcheck disable=SC2046
expect "a hundred groups" "$python" "$programs/transfer_groups.py" $(sockets 2)

step "the other daemon is killed"
# shellcheck disable=SC2046
background waits "$python" "$programs/transfer_groups.py" --until-error "$run_dir/error" \
  $(sockets 2)
eventually 30 grep -q waits "$run_dir/waits.out" || fail "nobody waits"
daemon_stop 1 KILL || true
expect_ended "who waited is told" waits
sed 's/^/       /' "$run_dir/error"
expect_text "rank 1 is named" '^ABORTED .*rank 1' "$run_dir/error"
expect_stop 0 TERM
