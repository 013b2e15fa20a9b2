#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A client that means no good speaks to the daemon without the library: messages cut short, wild
# offsets, indexes and counts, handles of others, noise in shared memory. The daemon refuses each
# with a reason, cuts the client off where it breaks the rules, stays up, and other groups go on.
. "$(dirname "$0")/../_init.sh"

memif_ring_start 2
step "a group sums all the time, and shall not notice anything"
background bystanders "$python" "$programs/sums.py" --until "$run_dir/enough" \
  --sizes 0,1,1000,100003 $(sockets 2)
eventually 30 grep -q running "$run_dir/bystanders.out" || fail "no sum got through"

pids=("${daemon_pids[@]}")
expect "whatever it tries is refused" "$python" "$hostile/hostile.py" $(sockets 2)
for i in 0 1; do
  daemon_alive $i || fail "daemon $i, process ${pids[i]}, did not survive it"
done
expect_text "the daemon's log has the reason" "client .* broke the command queue's rules" \
  "$(daemon_log 0)"

touch "$run_dir/enough"
expect_ended "the other group's sums were right all the time" bystanders
step "nothing of the hostile clients is left"
freed() {
  "$python" "$programs/status.py" "$(daemon_socket 0)" --expect-no-clients &&
    "$python" "$programs/status.py" "$(daemon_socket 1)" --expect-no-clients
}
eventually 10 freed || { freed || true; fail "a daemon still has a client, a group or memory"; }
expect "and an honest client is served" "$python" "$programs/sums.py" \
  --sizes 100000 $(sockets 2)
for i in 0 1; do expect_stop $i TERM; done
