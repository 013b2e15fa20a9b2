#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Who may not open the control socket is told so, by name, and the daemon goes on.
. "$(dirname "$0")/_init.sh"

command -v setpriv >/dev/null || skip "there is no setpriv to become another user with"
memif_ring_start 1
# Everything on the way is open to all; the socket alone decides.
chmod 755 "$run_dir"
[[ $(stat -c %a "$(daemon_socket 0)") == 600 ]] ||
  fail "the socket's mode is $(stat -c %a "$(daemon_socket 0)"), and 0600 was configured"

step "nobody's client is refused"
status=0
setpriv --reuid=65534 --regid=65534 --clear-groups "$python" "$repo_root/test/system/status.py" \
  "$(daemon_socket 0)" >"$run_dir/out" 2>&1 || status=$?
((status != 0)) || fail "nobody may open a socket of mode 0600"
expect_text "by name" "(PERMISSION|ermission).*gw0.sock|gw0.sock.*ermission" "$run_dir/out"
expect "root's is not" "$python" "$repo_root/test/system/status.py" "$(daemon_socket 0)"

step "a socket for everybody"
daemon_end 0 "${daemon_pids[0]}"
memif_rank_start 0 1 --daemon.socket_mode 0666
daemon_wait_ready 0 || fail "the daemon does not start"
[[ $(stat -c %a "$(daemon_socket 0)") == 666 ]] ||
  fail "the socket's mode is $(stat -c %a "$(daemon_socket 0)"), and 0666 was configured"
