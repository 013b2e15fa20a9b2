#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# DPDK's dpdk-dumpcap captures from a running daemon, on a port that no kernel sees (memif), and
# tshark understands what it got. Where the EAL shares nothing the daemon says so, and runs.
. "$(dirname "$0")/../_init.sh"
. "$(dirname "$0")/../_dissector.sh"

command -v dpdk-dumpcap >/dev/null || skip "dpdk-dumpcap is not installed (package dpdk)"
[[ $GRADWIRE_SANITIZE == none ]] ||
  skip "dpdk-dumpcap has no sanitizer: it cannot map what a sanitized daemon has mapped elsewhere"
command -v tshark >/dev/null || skip "tshark is not installed (packages.debian, [observe])"
export XDG_CONFIG_HOME=$run_dir/config HOME=$run_dir

daemon_huge=--huge-unlink=existing
memif_ring_start 2 --daemon.capture true
prefix=gw$$-0
expect_text "the daemon says how" "capture: dpdk-dumpcap --file-prefix=$prefix -i PORT" \
  "$(daemon_log 0)"

timeout 30 dpdk-dumpcap --file-prefix="$prefix" -D >"$run_dir/list" 2>&1 || true
expect_text "dpdk-dumpcap attaches and lists the port" net_memif0 "$run_dir/list"
# Its own default cuts frames off after 2,176 bytes.
background capture timeout 60 dpdk-dumpcap --file-prefix="$prefix" -i net_memif0 -s 9216 \
  -w "$run_dir/ring.pcapng"
eventually 20 grep -q "Packets captured" "$run_dir/capture.out" || {
  cat "$run_dir/capture.out" && fail "dpdk-dumpcap does not capture"
}
expect "sums while it captures" "$python" "$programs/sums.py" \
  --sizes 1,1000,20000,200000 $(sockets 2)
sleep 0.5
# timeout(1) stands before it.
kill -INT "$(ps -o pid= --ppid "${background[capture]}" | tr -d " ")"
expect_ended "it ends" capture
cat "$run_dir/capture.out"

fields=()
for field in type lane number group_tag op_seq chunk hop datatype redop from_rank to_rank \
  nranks range.last completed_op_seq; do
  fields+=(-e "gradwire.$field")
done
dissect -r "$run_dir/ring.pcapng" \
  -Y gradwire -T fields -E separator=, -E occurrence=f "${fields[@]}" -e _ws.expert.message \
  -e udp.length >"$run_dir/fields" 2>"$run_dir/tshark.err"
expect "every packet is what doc/protocol says" \
  "$python" "$programs/dissector.py" "$run_dir/fields"

expect "sums after it" "$python" "$programs/sums.py" --sizes 1,20000 $(sockets 2)
expect_stop 0 TERM
expect_stop 1 TERM
! ls /dev/hugepages/"$prefix"map_* 2>/dev/null || fail "hugepages are left behind"

step "without files to share there is no capture, and the daemon runs"
daemon_eal=(--in-memory)
daemon_huge=--no-telemetry
memif_rank_start 0 2 --daemon.capture true
daemon_wait_ready 0 || fail "the daemon does not start with --in-memory"
expect_text "it says why" 'capture is not available: the EAL does not share its configuration' \
  "$(daemon_log 0)"
expect_stop 0 TERM
