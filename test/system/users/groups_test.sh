#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Groups as jobs have them, over three daemons: uneven numbers of processes at each, processes in
# any order, one host alone, parts of a job that overlap; and groups made and left, after which the
# daemons have none, and no more open files than before.
#
# usage: groups_test.sh [MANY]     so many groups; 30, and 300 in the suite long
. "$(dirname "$0")/../_init.sh"
many=${1:-30}

groups() { "$python" "$programs/groups.py" "$@"; }
open_files() { find "/proc/${daemon_pids[$1]}/fd" -mindepth 1 | wc -l; }

memif_ring_start 3
# shellcheck disable=SC2046
expect "every collective by the processes' numbers" groups $(sockets 3)
files=$(open_files 1)
# shellcheck disable=SC2046
expect "$many groups" groups --many "$many" $(sockets 3)
fewer_files() { (($(open_files 1) <= files)); }
eventually 10 fewer_files || fail "daemon 1 had $files files open, and has $(open_files 1)"
"$gradwire_cli" status --socket "$(daemon_socket 1)" --json >"$run_dir/status"
expect_text "no client is left" '"clients": ?\[\]' "$run_dir/status"
for rank in 0 1 2; do expect_stop $rank TERM; done
