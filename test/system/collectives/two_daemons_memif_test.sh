#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two daemons on one machine share a memif link. Clients sum arrays of several sizes through them;
# every sum has the reference's bits, on both ranks, again on a second run.
. "$(dirname "$0")/../_init.sh"

memif_ring_start 2
expect "sums over memif" "$python" "$programs/sums.py" --twice \
  --sizes 0,1,2,7,64,1000,2209,4463,100000,1000003 $(sockets 2)
expect "two members on each rank" "$python" "$programs/sums.py" --members 2 \
  --sizes 0,1,1000,100000 $(sockets 2)
expect "copied memory" "$python" "$programs/sums.py" --copied \
  --sizes 1,1000,100000 $(sockets 2)
