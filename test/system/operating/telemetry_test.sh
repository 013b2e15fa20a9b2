#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# DPDK's own tool looks at a daemon: dpdk-telemetry.py asks the endpoints under /gradwire.
. "$(dirname "$0")/../_init.sh"

command -v dpdk-telemetry.py >/dev/null || skip "dpdk-telemetry.py is not installed (package dpdk)"
# The daemons of other stories run without telemetry.
daemon_telemetry=--telemetry
memif_ring_start 2
mkdir "$run_dir/job"
for rank in 0 1; do
  background "job-$rank" "$gradwire_perf" --socket "$(daemon_socket $rank)" --rank $rank \
    --nranks 2 --rendezvous "$run_dir/job" -b 64K -e 64K -n 1000000 -w 1
done
busy() {
  "$gradwire_cli" groups --socket "$(daemon_socket 0)" --json |
    grep -q '"done_op_seq": [1-9][0-9]'
}
eventually 20 busy || fail "the job does not start"

# telemetry COMMAND: what the script of the package prints for it.
telemetry() { printf '%s\n' "$1" | within 20 dpdk-telemetry.py -f "gw$$-0" 2>&1; }
telemetry / >"$run_dir/commands"
for endpoint in status groups ports lanes counters; do
  expect_text "/gradwire/$endpoint is listed" "/gradwire/$endpoint" "$run_dir/commands"
done
telemetry /gradwire/status >"$run_dir/status"
expect_text "the state" '"state": "running"' "$run_dir/status"
expect_text "a group" '"groups": 1' "$run_dir/status"
telemetry /gradwire/groups >"$run_dir/groups"
group=$(grep -aoE '[0-9a-f]{16}' "$run_dir/groups" | head -n 1)
telemetry "/gradwire/groups,$group" >"$run_dir/group"
expect_text "the group by its id" '"nranks": 2' "$run_dir/group"
telemetry /gradwire/ports,0 >"$run_dir/port"
expect_text "a port" '"device": "net_memif0"' "$run_dir/port"
telemetry /gradwire/lanes,0 >"$run_dir/lane"
expect_text "a lane" '"polling": "adaptive"' "$run_dir/lane"
telemetry /gradwire/counters,0 >"$run_dir/counters"
expect_text "its counters" '"packets_rx_packets": [1-9]' "$run_dir/counters"
telemetry /gradwire/ports,7 >"$run_dir/nothing"
expect_text "what is not there" '"/gradwire/ports": null' "$run_dir/nothing"
