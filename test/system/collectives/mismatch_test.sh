#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Clients call things that do not fit together: another count, datatype, redop, tag, collective or
# root. Every rank's client is told, by an error that names two ranks and what both called; another
# group goes on.
. "$(dirname "$0")/../_init.sh"

memif_ring_start 3
step "a group sums all the time, and shall not notice anything"
background bystanders "$python" "$programs/sums.py" --until "$run_dir/enough" \
  --sizes 0,1,1000,100003 $(sockets 3)
expect "one difference at a time" "$python" "$programs/mismatch.py" $(sockets 3)
expect "the daemons go on" "$python" "$programs/status.py" "$(daemon_socket 0)"
touch "$run_dir/enough"
expect_ended "the other group's sums were right all the time" bystanders
