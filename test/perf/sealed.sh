#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What a lane with a core of its own carries with its packets in clear, authenticated and encrypted
# (lane_rate.cc), at the payloads of MTU 1,500 and 9,000, in turns with the cipher alone
# (cipher_bench.cc); and whether that is 0.9 of 1 / (1 / clear + 2 / cipher), what is left of a lane
# in clear that also seals and opens each packet, of the same turn. By hand, on two quiet cores:
#   ninja -C build perf && test/perf/sealed.sh [BUILD] [TURNS] [OPS] [BYTES]
#                                                         default: build 8 4 67108864
# A turn has OPS ops of each row, and two rounds of the cipher before and after them.
. "$(dirname "$0")/../../scripts/lib/setup.sh"
build=$(cd "${1:-$repo_root/build}" && pwd)
turns=${2:-8}
ops=${3:-4}
bytes=${4:-67108864}
need_root
for program in lane_rate cipher_bench; do
  [[ -x $build/test/perf/$program ]] || die "there is no $program: ninja -C $build perf."
done
reserve_hugepages 300
mount_hugetlbfs
run_dir=
run_dir_make
for ((turn = 0; turn < turns; turn++)); do
  "$build/test/perf/cipher_bench" 2 >"$run_dir/$turn.cipher.0"
  "$build/test/perf/lane_rate" --turns "$ops" --sizes "$bytes" \
    --security off authenticate encrypt >"$run_dir/$turn.lane"
  "$build/test/perf/cipher_bench" 2 >"$run_dir/$turn.cipher.1"
  note "turn $((turn + 1)) of $turns"
done
printf 'load average %s\n' "$(cut -d' ' -f1-3 /proc/loadavg)"
"$python" "$repo_root/test/perf/sealed.py" "$run_dir" "$turns"
