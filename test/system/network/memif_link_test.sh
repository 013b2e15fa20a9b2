#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A memif link comes up in whatever order its two daemons start, and comes back after either was
# killed, without the other being started anew.
. "$(dirname "$0")/../_init.sh"

# start INDEX: its end of the link; index 0 is the server.
start() {
  local role=server
  (($1 == 0)) || role=client
  daemon_write_config "$1" "net_memif0=10.77.0.$(($1 + 1))/24,9000"
  daemon_start "$1" --vdev "$(memif_vdev 0 $role 0 "$1")" -- --timeouts.drain_ms 200
  daemon_wait_ready "$1" || fail "daemon $1 is not ready"
}
sums() {
  expect "$1" "$python" "$programs/sums.py" --sizes 1,1000,300001 $(sockets 2)
}
link0=$run_dir/link0.sock

step "the client's daemon starts, though its server's is not there"
start 1
expect_text "and says that the link is down" "link down: no memif server listens at $link0" \
  "$(daemon_log 1)"
link_warning() {
  "$gradwire_cli" status --socket "$(daemon_socket 1)" >"$run_dir/status" &&
    grep -q "warning: port net_memif0: the link is down" "$run_dir/status"
}
expect "its status too" link_warning
start 0
sums "they sum once the server is there"
link_warning && fail "the status goes on about a link that is up"
expect_text "the client's daemon has said so" "connected to the memif server at $link0" \
  "$(daemon_log 1)"

step "the server's daemon is killed, and leaves its socket"
daemon_stop 0 KILL || true
[[ -S $link0 ]] || fail "a daemon that was killed cannot have removed its socket"
eventually 10 grep -q "memif link went down: waiting for a server at $link0" "$(daemon_log 1)" ||
  fail "the client's daemon does not notice"
start 0
expect_text "a new one removes what it left" "removed $link0, left behind by a server" \
  "$(daemon_log 0)"
sums "and they sum; the client's daemon was not started anew"

step "the client's daemon is killed"
daemon_stop 1 KILL || true
start 1
sums "a new one takes its place"

step "a second server on the same socket is refused, and so is a file in its place"
cpus=$(allowed_cpus)
refused() {
  local status=0
  within 60 "$gradwired" --lcores "0@($cpus),1@($cpus)" --no-pci --no-telemetry --huge-unlink \
    -m 64 --file-prefix "gw$$-refused" --vdev "$1" -- --config "$(daemon_config 0)" \
    --daemon.control_socket "$run_dir/refused.sock" >"$run_dir/refused" 2>&1 || status=$?
  ((status == 1)) || { cat "$run_dir/refused" && fail "it ended with status $status, not 1"; }
}
refused "$(memif_vdev 0 server 0)"
expect_text "somebody listens there" "another process already listens on $link0" "$run_dir/refused"
echo precious >"$run_dir/link9.sock"
refused "$(memif_vdev 0 server 9)"
expect_text "a file" "link9.sock exists and is not a socket" "$run_dir/refused"
[[ $(<"$run_dir/link9.sock") == precious ]] || fail "the file was touched"
sums "the first goes on"
for i in 0 1; do expect_stop $i TERM; done
