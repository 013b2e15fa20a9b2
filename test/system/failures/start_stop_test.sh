#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What a daemon needs it takes, and gives back: it starts, leaves after SIGTERM and after SIGINT,
# and nothing of it is left, neither after that nor after a start that was refused.
. "$(dirname "$0")/../_init.sh"

effective=$run_dir/effective.toml
step "the effective configuration loads to itself"
"$gradwired" --check --port.device x --port.ip 10.0.0.1/8 >"$effective" || fail "--check"
"$gradwired" --check --config "$effective" | cmp - "$effective" ||
  fail "the effective configuration does not load to itself"

# refused WHAT PATTERN LCORES FLAG...: a start on a device that is not there.
refused() {
  local what=$1 pattern=$2 lcores=$3
  shift 3
  step "refused: $what"
  if within 60 "$gradwired" --lcores "$lcores" --file-prefix "gw$$-refused" --no-pci -m 4 \
    --no-telemetry -- --port.device x --port.ip 10.0.0.1/8 \
    --daemon.control_socket "$run_dir/refused.sock" "$@" >"$run_dir/refused.out" 2>&1; then
    fail "it started"
  fi
  expect_text "and it says why" "$pattern" "$run_dir/refused.out"
  [[ ! -e $run_dir/refused.sock ]] || fail "a refused daemon left its socket"
}
cpus=$(allowed_cpus)
refused "one lcore" "--lcores 0@0,1@1" "0@($cpus)"
refused "more lanes than lcores" "lanes.count = 3" "0@($cpus),1@($cpus)" --lanes.count 3
refused "a device that the EAL does not have" "port x" "0@($cpus),1@($cpus)"

for signal in TERM INT; do
  memif_ring_start 1
  [[ -S $(daemon_socket 0) ]] || fail "there is no control socket"
  expect_text "its mempools are on hugepages" "on pages of 2 MiB" "$(daemon_log 0)"
  expect_stop 0 $signal
  [[ ! -e $(daemon_socket 0) ]] || fail "the control socket is left after SIG$signal"
  [[ ! -e $run_dir/link0.sock ]] || fail "the link's socket is left after SIG$signal"
done

step "no hugepage file is left"
! ls /dev/hugepages/*"gw$$"* 2>/dev/null || fail "hugepage files are left"
