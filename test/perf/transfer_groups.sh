#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What groups for transfers alone cost two daemons on one memif link while nobody waits: processor
# time by thread, and memory, with 0, 100 and 1,000 of them, and how long forming them takes. Run it
# as root on a quiet machine, after scripts/test.sh has built.
#
# usage: test/perf/transfer_groups.sh [BUILD_FOLDER] [SECONDS]     default: build 10
. "$(dirname "$0")/../../scripts/lib/setup.sh"
build=$(cd "${1:-$repo_root/build}" && pwd)
seconds=${2:-10}
. "$repo_root/scripts/lib/daemons.sh"
daemons_prepare "$build" 900
step "two daemons, joined by memif, $(lscpu | sed -n 's/^Model name: *//p')"
memif_ring_start 2 --limits.transfer_groups 1024 --limits.user_transfer_groups 1024 ||
  die "the daemons did not start."
export GRADWIRE_LIBRARY=$build/lib/client/libgradwire.so.0.1.0
PYTHONPATH=$repo_root/python "$python" "$repo_root/test/perf/transfer_groups.py" \
  --seconds "$seconds" --pid "${daemon_pids[0]}" "$(daemon_socket 0)" "$(daemon_socket 1)"
