#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The matrix: every datatype and redop, 1 to 5 ranks, 1 and 2 members, awkward counts, special
# values, 10 million elements once. The sums have the reference's bits, the same on every rank, on a
# second run, and with another payload size.
. "$(dirname "$0")/../_init.sh"

for ranks in 1 2 3 4 5; do
  large=()
  ((ranks != 2)) || large=(--large 10000000)
  for payload in auto 1024; do
    memif_ring_start "$ranks" --transport.payload_bytes "$payload"
    expect "$ranks ranks, payload $payload" "$python" "$programs/matrix.py" \
      --digests "$run_dir/digests-$ranks" "${large[@]}" $(sockets "$ranks")
    large=()
    for ((i = 0; i < ranks; i++)); do daemon_end "$i" "${daemon_pids[i]}"; done
  done
done
