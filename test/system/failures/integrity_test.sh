#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Payloads without a CRC (transport.integrity = "link"): over memif, every sum has the reference's
# bits and the daemon says what is left out; daemons that differ form no group, and faults
# that nobody would notice are refused.
. "$(dirname "$0")/../_init.sh"

step "three daemons whose payloads carry no CRC"
memif_ring_start 3 --transport.integrity link
expect_text "the daemon says so at its start" 'transport.integrity = link' "$(daemon_log 0)"
expect "sums over memif" "$python" "$programs/sums.py" --twice \
  --sizes 0,1,2,7,64,1000,4463,100000,1000003 $(sockets 3)
expect_text "the status says so" 'transport.integrity = link' \
  <("$gradwire_cli" status --socket "$(daemon_socket 0)" --json)

step "bits are not to be flipped where nobody would notice"
if "$gradwire_cli" inject --socket "$(daemon_socket 0)" --corrupt 0.1 >"$run_dir/out" 2>&1; then
  fail "flipped bits are injected although payloads carry no CRC"
fi
expect_text "the refusal names the key" 'transport.integrity = link' "$run_dir/out"

step "rank 2 starts again, with CRCs"
expect_stop 2 TERM
memif_rank_start 2 3
daemon_wait_ready 2 || fail "rank 2 does not start again"
if "$python" "$programs/sums.py" --sizes 1 $(sockets 3) >"$run_dir/out" 2>&1; then
  fail "daemons with and without CRCs of payloads formed a group"
fi
expect_text "the refusal names both ranks and their values" \
  'transport.integrity is (link|payload) at rank [0-2] and (link|payload) at rank [0-2]' \
  "$run_dir/out"
