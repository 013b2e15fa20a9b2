#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A daemon starts, refuses a second instance and wrong calls, and leaves nothing behind.
. "$(dirname "$0")/_daemons.sh"

# Mistakes end before the EAL starts, with one line that names them.
expect_refusal() {
  local wanted=$1 text
  shift
  if text=$("$GRADWIRED" "$@" 2>&1); then fail "started although it must not: $*"; fi
  case $text in *"$wanted"*) ;; *) fail "\"$text\" does not say \"$wanted\"" ;; esac
}
"$GRADWIRED" --help | grep -q -- --transport.payload_bytes || fail "--help lacks a key"
expect_refusal 'did you mean "count"' -- --lanes.cuont 1
expect_refusal 'port.0.ip = 10.0.0.999/8' -- --port.device x --port.ip 10.0.0.999/8
expect_refusal 'EAL stand before' -- --no-pci
expect_refusal 'nonexistent.toml' -- --config /nonexistent.toml
"$GRADWIRED" --check --port.device x --port.ip 10.0.0.1/8 >"$DIR/effective.toml" || fail "--check"
"$GRADWIRED" --check --config "$DIR/effective.toml" | cmp - "$DIR/effective.toml" ||
  fail "the effective configuration does not load to itself"

need_hugepages 80
before=$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages)
options=(--port.device x --port.ip 10.0.0.1/8 --daemon.control_socket "$DIR/refused.sock")
eal=(--file-prefix "$(basename "$DIR")-refused" --no-pci -m 4 --no-telemetry)
expect_refusal 'needs them' "${eal[@]}" --lcores 0@0,1@0 --no-huge -- "${options[@]}"
expect_refusal '--lcores 0@0,1@1' "${eal[@]}" --lcores 0@0 -- "${options[@]}"
expect_refusal 'lanes.count = 3' "${eal[@]}" --lcores 0@0,1@0 -- "${options[@]}" --lanes.count 3
expect_refusal 'port x' "${eal[@]}" --lcores 0@0,1@0 -- "${options[@]}"
[ -e "$DIR/refused.sock" ] && fail "a refused daemon left its socket"

launch 0 server
ready 0
[ -S "$DIR/0.sock" ] || fail "there is no control socket"
grep -q 'on pages of 2 MiB' "$DIR/0.log" || fail "the page size of the mempools is not reported"
expect_refusal "$DIR/0.sock" -- --daemon.control_socket "$DIR/0.sock" --port.device x \
  --port.ip 10.0.0.1/8
stop 0 TERM || fail "exit status $? after SIGTERM"
[ -e "$DIR/0.sock" ] && fail "the control socket is left"

launch 0 server
ready 0
stop 0 INT || fail "exit status $? after SIGINT"

launch 0 server --daemon.require_isolated true
wait_for 20 is_gone 0 || fail "it runs although its core is not isolated"
wait "${DAEMON[0]}" && fail "exit status 0 although it must refuse"
grep -q 'require_isolated = true, but lane 0' "$DIR/0.log" || fail "the refusal does not say why"
unset "DAEMON[0]"

after=$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages)
ls /dev/hugepages/*"$(basename "$DIR")"* 2>/dev/null && fail "hugepage files are left"
echo "ok (free hugepages before $before, after $after)"
