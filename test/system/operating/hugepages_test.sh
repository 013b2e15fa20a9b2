#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Every buffer of a running daemon lies in hugepages: its mempools, as its own start-up report read
# them back, and the memory that it shares with a client, as /proc/PID/smaps has it on both sides.
. "$(dirname "$0")/../_init.sh"

memif_ring_start 2
expect_text "the report names each mempool's pages" "mempool .* pages of 2 MiB" "$(daemon_log 0)"
expect "client memory, on the client's side and the daemon's" \
  "$python" "$programs/smaps.py" --pid "${daemon_pids[0]}" "$(daemon_socket 0)"
expect "a buffer on the heap is found out" \
  "$python" "$programs/smaps.py" --heap-on-purpose "$(daemon_socket 0)"
