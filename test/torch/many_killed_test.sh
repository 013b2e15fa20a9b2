#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Trainings by DDP, by FSDP2, and by DDP that goes on by regroup(), lose a process at a random
# moment, one after the other: each survivor is told whom it lost, or goes on without it, and
# nothing of them is left at the daemons.
#   GRADWIRE_KILLS       how many; default 12
#   GRADWIRE_KILLS_SEED  of what is drawn; default 1
. "$(dirname "$0")/_torch.sh"

# left: groups and clients that the daemons still have.
left() {
  local daemon
  for daemon in 0 1; do
    "$gradwire_cli" status --json --socket "$(daemon_socket "$daemon")" | "$python" -c '
import json, sys
status = json.load(sys.stdin)
print("%d groups, %d clients" % (len(status["groups"]), len(status["clients"])))'
  done
}
nothing_left() { [[ $(left | sort -u) == "0 groups, 0 clients" ]]; }

memif_ring_start 2 "${torch_daemon_flags[@]}"
pages=$(hugepages_read free_hugepages)
TIMEOUT_MULTIPLIER=$timeout_multiplier "$torch_python" "$repo_root/test/torch/many_killed.py" \
  "${GRADWIRE_KILLS:-12}" "${GRADWIRE_KILLS_SEED:-1}" "$(daemon_socket 0)" "$(daemon_socket 1)" |
  sed -u 's/^/       /' || fail "a survivor is not told whom it lost"
eventually 20 nothing_left || fail "the daemons still have: $(left | paste -sd ';')"
(($(hugepages_read free_hugepages) >= pages)) ||
  fail "$(hugepages_read free_hugepages) hugepages are free, and $pages were before"
