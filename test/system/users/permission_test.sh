#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Who may not open the control socket is told so, by name, and the daemon goes on. Who may does not
# see what names another user's group.
. "$(dirname "$0")/../_init.sh"

# Everything on the way is open to all; the socket alone decides.
as_nobody_make
memif_ring_start 1
[[ $(stat -c %a "$(daemon_socket 0)") == 600 ]] ||
  fail "the socket's mode is $(stat -c %a "$(daemon_socket 0)"), and 0600 was configured"

step "nobody's client is refused"
status=0
"${as_nobody[@]}" "$python" "$programs/status.py" \
  "$(daemon_socket 0)" >"$run_dir/out" 2>&1 || status=$?
((status != 0)) || fail "nobody may open a socket of mode 0600"
expect_text "by name" "(PERMISSION|ermission).*gw0.sock|gw0.sock.*ermission" "$run_dir/out"
expect "root's is not" "$python" "$programs/status.py" "$(daemon_socket 0)"

step "a socket for everybody"
daemon_end 0 "${daemon_pids[0]}"
memif_rank_start 0 1 --daemon.socket_mode 0666
daemon_wait_ready 0 || fail "the daemon does not start"
[[ $(stat -c %a "$(daemon_socket 0)") == 666 ]] ||
  fail "the socket's mode is $(stat -c %a "$(daemon_socket 0)"), and 0666 was configured"

background sums "$python" "$programs/sums.py" --until "$run_dir/enough" $(sockets 1)
eventually 30 grep -q running "$run_dir/sums.out" || fail "root's group does not sum"
for verb in status trace; do
  # With sanitizers and beside other stories the text of a trace takes seconds.
  gradwire=("$gradwire_cli" "$verb" --json --timeout 60 --socket "$(daemon_socket 0)")
  "${gradwire[@]}" >"$run_dir/roots.json"
  expect_text "root sees its group's id ($verb)" '"group_id": ?"[0-9a-f]{16}"' "$run_dir/roots.json"
  "${as_nobody[@]}" "${gradwire[@]}" >"$run_dir/nobodys.json"
  expect_text "nobody sees that there is a group ($verb)" '"group_id": ?"hidden-' \
    "$run_dir/nobodys.json"
  ! grep -qE '"group_id": ?"[0-9a-f]{16}"' "$run_dir/nobodys.json" ||
    fail "nobody sees the id of root's group"
done
touch "$run_dir/enough"
expect_ended "root's sums were right" sums

step "one user takes what it can get"
daemon_end 0 "${daemon_pids[0]}"
memif_rank_start 0 1 --daemon.socket_mode 0666 --limits.clients 3 --limits.user_clients 2 \
  --limits.groups 2 --limits.user_groups 1 --timeouts.open_ms 1000
daemon_wait_ready 0 || fail "the daemon does not start"
quotas() { "$python" "$hostile/quotas.py" "$1" "$(daemon_socket 0)" "${@:2}"; }
"${as_nobody[@]}" "$python" "$hostile/quotas.py" groups "$(daemon_socket 0)" \
  >"$run_dir/groups.out"
expect_text "its first group is formed" '^formed' "$run_dir/groups.out"
expect_text "the next is refused" 'user 65534 already has 1 groups, and limits.user_groups = 1' \
  "$run_dir/groups.out"
# A client counts until the lanes have let go of what it had.
clients_are() {
  "$gradwire_cli" status --socket "$(daemon_socket 0)" >"$run_dir/status.out" &&
    [[ $(grep -c '^client ' "$run_dir/status.out") == "$1" ]]
}
eventually 30 clients_are 0 || fail "the daemon keeps what nobody had"

background hoard "${as_nobody[@]}" "$python" "$hostile/quotas.py" hold \
  "$(daemon_socket 0)" 2
eventually 30 grep -q 'one more' "$run_dir/hoard.out" || fail "nobody gets no client"
expect_text "its third client is refused" 'user 65534 already has 2 .*limits.user_clients = 2' \
  "$run_dir/hoard.out"
status=0
"${as_nobody[@]}" "$gradwire_cli" status --socket "$(daemon_socket 0)" >"$run_dir/out" 2>&1 ||
  status=$?
((status == 1)) || fail "nobody's status is answered beyond its quota: status $status"
expect_text "its tools are told too" 'hung up: user 65534 already has .*limits.user_clients = 2' \
  "$run_dir/out"
expect_text "root's group is formed" '^formed' <(quotas groups)
eventually 30 clients_are 2 || fail "the daemon keeps what root had"

background roots "$python" "$hostile/quotas.py" hold "$(daemon_socket 0)" 1
expect "all clients are taken, and root still sees the status" eventually 30 clients_are 3
expect_text "who says nothing is hung up" 'timeouts.open_ms = 1000' <(quotas silent)
eventually 30 grep -q 'one more' "$run_dir/roots.out" || fail "root's own is not hung up"
expect_text "by name, in all" 'timeouts.open_ms = 1000' "$run_dir/roots.out"
