#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# More busy lanes than cores, which nobody should configure: the daemons warn of it, ops wait for
# the scheduler's turns, and are right all the same; nobody is taken for dead.
. "$(dirname "$0")/../_init.sh"

daemon_lanes=2
memif_ring_start 2 --lanes.polling busy --limits.groups 4
for i in 0 1; do
  expect_text "daemon $i warns" "lanes.polling = busy, but its core is not isolated" \
    "$(daemon_log $i)"
done
# A handful of ops: each takes some turns of 4 to 20 ms.
expect "sums are right" "$python" "$programs/sums.py" \
  --sizes 1,1000,100003 $(sockets 2)
for i in 0 1; do
  ! grep -aq aborted "$(daemon_log $i)" || fail "a group was aborted"
  expect_stop $i TERM
done
