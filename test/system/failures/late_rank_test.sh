#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank that computes for a second has its core while the others wait for it: their lanes, and its
# own, sleep. Lanes have the nice value that the configuration says; a daemon that may not lower it
# starts all the same, and says why and what mends it.
. "$(dirname "$0")/../_init.sh"

# lane_nice INDEX: the nice values of its lanes, as the kernel has them. DPDK calls their threads
# rte-worker, and dpdk-worker since 23.11.
lane_nice() {
  local task
  for task in "/proc/${daemon_pids[$1]}/task/"*; do
    ! grep -qE '^(rte|dpdk)-worker' "$task/comm" || sed 's/.*) //' "$task/stat" | cut -d' ' -f17
  done | tr '\n' ' '
}
# status_nice INDEX: the same, as the daemon's status has them.
status_nice() {
  "$gradwire_cli" status --socket "$(daemon_socket "$1")" --json | "$python" -c '
import json, sys
print(*(lane["nice"] for lane in json.load(sys.stdin)["lanes"]), end=" ")'
}

daemon_lanes=2
memif_ring_start 2
# A sanitizer makes each instruction several.
most=6
[[ ${GRADWIRE_SANITIZE:-none} == none ]] || most=12
expect "a rank posts a second late, and lanes that wait cost less than $most % of a core" \
  "$python" "$programs/late_rank.py" --most "$most" $(sockets 2) "${daemon_pids[@]}"
if grep -aq 'lanes: nice -20' "$(daemon_log 0)"; then
  expect "lanes have nice -20" test "$(lane_nice 0)" = "-20 -20 "
  expect "the status says so" test "$(status_nice 0)" = "-20 -20 "
else
  note "this story's root may not lower nice values"
fi
for i in 0 1; do expect_stop $i TERM; done

step "a daemon that may not"
command -v setpriv >/dev/null || skip "there is no setpriv, to start a daemon without CAP_SYS_NICE"
printf '#!/bin/bash\nulimit -e 0\nexec setpriv --bounding-set -sys_nice %q "$@"\n' "$gradwired" \
  >"$run_dir/gradwired"
chmod +x "$run_dir/gradwired"
gradwired=$run_dir/gradwired
memif_ring_start 2
own=$(nice)
expect_text "says why" "lanes.nice = -20: the lanes keep nice $own: .*CAP_SYS_NICE" \
  "$(daemon_log 0)"
expect_text "and what mends it" 'LimitNICE=-20' "$(daemon_log 0)"
expect "its lanes keep what they have" test "$(lane_nice 0)" = "$own $own "
expect "and sum" "$python" "$programs/sums.py" --sizes 1,100003 $(sockets 2)
for i in 0 1; do expect_stop $i TERM; done
expect "the nice value that they have needs nothing" memif_ring_start 2 --lanes.nice "$own"
! grep -aq 'lanes.nice = ' "$(daemon_log 0)" || fail "it warns of a nice value that it has"
