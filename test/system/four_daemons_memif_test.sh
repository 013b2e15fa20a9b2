#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Four daemons in a ring of four memif links: each reaches its two neighbours through different
# ports, and those opposite through nobody but its neighbours.
. "$(dirname "$0")/_init.sh"

memif_ring_start 4
expect "sums around the ring" "$python" "$repo_root/test/system/sums.py" --twice \
  --sizes 0,1,3,4,5,1000,4463,300001 $(sockets 4)
