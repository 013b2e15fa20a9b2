#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# dpdk_test_gpudev.sh DRIVER VDEV [EXCEPT]: DPDK's own test of gpudev drivers on one device. It
# exits 0 whatever happens, so passing means: each of its five subtests says PASSED, none says
# FAILED, and it exits 0. EXCEPT is the title of a subtest that may fail.
set -euo pipefail
driver=$1
vdev=$2
except=${3:-}
program=dpdk-test-gpudev
if ! command -v "$program" >/dev/null; then
  echo "skipped: $program is not installed (scripts/packages.debian, set run)"
  exit 77
fi
if [[ ${GRADWIRE_SANITIZE:-none} == *address* ]]; then
  echo "skipped: the distribution's $program has no sanitizer, and cannot load a driver that has"
  exit 77
fi
# By name alone: the EAL refuses a path that everybody may write to part of, as a clone's in /tmp.
export LD_LIBRARY_PATH=${driver%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
# Memory without hugepages does for a test of a driver's logic.
status=0
output=$("$program" --no-huge -m 512 --no-pci --no-telemetry --no-shconf -l 0 \
  --log-level=lib.eal:error -d "${driver##*/}" --vdev "$vdev" 2>&1) || status=$?
printf '%s\n' "$output"
titles=('Allocate GPU memory' 'Register CPU memory' 'Map GPU memory for CPU visibility'
  'Communication flag' 'Communication list')
wrong=0
for title in "${titles[@]}"; do
  # The verdict is the next line of this kind after the subtest's title.
  verdict=$(awk -v title="=======> TEST: $title" '
    $0 == title { inside = 1; next }
    inside && /^=======> TEST: (PASSED|FAILED)$/ { print $NF; exit }' <<<"$output")
  if [[ $verdict != PASSED && $title != "$except" ]]; then
    echo "subtest '$title': ${verdict:-did not run}"
    wrong=1
  fi
done
((status == 0)) || { echo "exit status $status" && wrong=1; }
if grep -q 'TEST: FAILED' <<<"$output" && [[ -z $except ]]; then wrong=1; fi
exit "$wrong"
