#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Four daemons in a ring of four memif links: each reaches its two neighbours through different
# ports, and those opposite through nobody but its neighbours. Then a ring of three of them. Ranks
# that wait for each op stand beside ranks that have eight under way: no rank's depth may hold up
# another's op.
. "$(dirname "$0")/_init.sh"

memif_ring_start 4
expect "sums around the ring" "$python" "$repo_root/test/system/sums.py" --twice \
  --sizes 0,1,3,4,5,1000,4463,300001 $(sockets 4)
expect "four ranks, three with eight ops under way and one with one" "$python" \
  "$repo_root/test/system/depths.py" --depths 8,8,8,1 --counts 50000,120000 $(sockets 4)
expect "the rank that waits is the first" "$python" \
  "$repo_root/test/system/depths.py" --depths 1,8,2,8 --counts 80000 $(sockets 4)

for i in 0 1 2 3; do expect_stop "$i" TERM; done
memif_ring_start 3
expect "three ranks, two with eight ops under way and one with one" "$python" \
  "$repo_root/test/system/depths.py" --depths 8,8,1 --counts 50000,120000 $(sockets 3)
