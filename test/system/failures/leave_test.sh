#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A daemon is told to stop: it leaves with status 0 and takes its socket along. A second daemon on
# the socket of a living one is refused and does it no harm; that of a dead one is no obstacle.
. "$(dirname "$0")/../_init.sh"

memif_ring_start 2
first=${daemon_pids[0]}

step "a second daemon on the same control socket is refused"
cpus=$(allowed_cpus)
status=0
within 20 "$gradwired" --lcores "0@($cpus),1@($cpus)" --no-pci --no-telemetry --huge-unlink -m 64 \
  --file-prefix "gw$$-second" --vdev "$(memif_vdev 0 server 9)" \
  -- --config "$(daemon_config 0)" >"$run_dir/second.log" 2>&1 || status=$?
rm -rf "/run/dpdk/gw$$-second"
((status == 1)) || { tail "$run_dir/second.log" && fail "it ended with status $status, not 1"; }
expect_text "its message names the socket" "gw0.sock" "$run_dir/second.log"
expect "the first goes on" daemon_alive 0
expect "and works" "$python" "$programs/sums.py" --sizes 1000 $(sockets 2)

step "SIGTERM ends it with status 0"
kill -TERM "$first"
status=0
wait "$first" || status=$?
((status == 0)) || fail "it left with status $status"
[[ ! -e $(daemon_socket 0) ]] || fail "it left its socket behind"

step "a dead daemon's socket does not stop the next"
kill -KILL "${daemon_pids[1]}"
wait "${daemon_pids[1]}" 2>/dev/null || true
[[ -S $(daemon_socket 1) ]] || fail "a daemon that was killed cannot have removed its socket"
memif_rank_start 0 2
memif_rank_start 1 2
daemon_wait_ready 0 || fail "daemon 0 does not start again"
daemon_wait_ready 1 ||
  fail "daemon 1 does not start over its dead predecessor's socket"
expect "they work" "$python" "$programs/sums.py" --sizes 1000 $(sockets 2)
