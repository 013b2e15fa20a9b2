#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# An all-reduce, a send and all-to-alls of more than 4 GiB through two daemons, every byte compared.
# It takes 9 GB of hugepages and a minute or more, so it is in a suite of its own.
. "$(dirname "$0")/../_init.sh"

pages=$((2 * 2049 + 300))
available_mib=$(($(sed -n 's/^MemAvailable: *\([0-9]*\).*/\1/p' /proc/meminfo) / 1024))
free_pages=$(cat "$hugepage_folder/free_hugepages")
((free_pages * 2 + available_mib > pages * 2 + 1500)) ||
  skip "9 GB of memory are needed, and $available_mib MiB and $free_pages hugepages are free"
reserve_hugepages "$pages"
memif_ring_start 2
expect "sums and bytes beyond 4 GiB are right" \
  "$python" "$programs/large.py" "$(daemon_socket 0)" "$(daemon_socket 1)"
expect_stop 0 TERM
expect_stop 1 TERM
