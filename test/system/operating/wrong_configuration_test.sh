#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# An operator makes one mistake at a time. Each is refused before anything starts, with exit status
# 1 or 2, and a message that names the place, the key, the value and what would be right.
. "$(dirname "$0")/../_init.sh"

good=$run_dir/good.toml
cat >"$good" <<'EOT'
[daemon]
name = "gw"
control_socket = "/tmp/gw-never.sock"

[[port]]
device = "net_memif0"
ip = "10.77.0.1/24"
mtu = 9000

[lanes]
polling = "adaptive"
EOT

refused() {
  local what=$1 pattern=$2
  shift 2
  step "$what"
  local status=0
  within 20 "$gradwired" "$@" >"$run_dir/out" 2>&1 || status=$?
  ((status == 1 || status == 2)) || { cat "$run_dir/out" && fail "$what: exit status $status"; }
  grep -qE -- "$pattern" "$run_dir/out" ||
    { cat "$run_dir/out" && fail "$what: its message does not match '$pattern'"; }
  grep -q 'unknown exception' "$run_dir/out" && fail "$what: an exception nobody caught"
  return 0
}

# mistake WHAT PATTERN SED_EXPRESSION: one change to the good file.
mistake() {
  sed -E "$3" "$good" >"$run_dir/bad.toml"
  cmp -s "$good" "$run_dir/bad.toml" && fail "the change for '$1' changed nothing"
  refused "$1" "$2" --check -- --config "$run_dir/bad.toml"
}

step "the good file passes, and is printed whole"
"$gradwired" -- --check --config "$good" >"$run_dir/out" 2>&1 || fail "the good file is refused"
grep -q 'device = "net_memif0"' "$run_dir/out" || fail "it does not print the configuration"

refused "a file that is not there" "nowhere.toml: cannot be read: No such file" \
  -- --check --config "$run_dir/nowhere.toml"
mistake "a line that is not TOML" "bad.toml:3: not TOML" 's|^control_socket.*|control_socket = |'
mistake "an unknown key" "bad.toml:2: unknown key \"nam\" in \[daemon\].*\"name\"" 's|^name|nam|'
mistake "an unknown section" "unknown section \"lane\".*\"lanes\"" 's|^\[lanes\]|[lane]|'
mistake "no port" "no \[\[port\]\] section" '/^\[\[port/,/^mtu/d'
mistake "a port without a device" "port.0.device is missing" '/^device/d'
mistake "a port without an address" "port.0.ip is missing" '/^ip/d'
mistake "an address that is none" "bad.toml:7: port.0.ip = .10.77.0.300/24.* such as .10.0.0.1/24" \
  's|10.77.0.1/24|10.77.0.300/24|'
mistake "an address without its prefix" "bad.toml:7: port.0.ip" 's|10.77.0.1/24|10.77.0.1|'
mistake "a number out of its bounds" "bad.toml:8: port.0.mtu = 100.*1280 to 9702" \
  's|^mtu.*|mtu = 100|'
mistake "a string for a number" "bad.toml:8: port.0.mtu" 's|^mtu.*|mtu = "large"|'
mistake "a word that is no choice" "lanes.polling = .*lazy.*busy, adaptive" 's|adaptive|lazy|'
mistake "a name that is too long" "daemon.name = .*1 to 32 characters" \
  's|"gw"|"gwgwgwgwgwgwgwgwgwgwgwgwgwgwgwgwgwgwgw"|'
mistake "the same address twice" "port.1.ip = .*port.0.ip has the same address" \
  '$a [[port]]\ndevice = "net_memif1"\nip = "10.77.0.1/24"'
mistake "the same device twice" "port.1.device = .*same device" \
  '$a [[port]]\ndevice = "net_memif0"\nip = "10.78.0.1/24"'
mistake "a payload above the MTU" "transport.payload_bytes = 9024: port.0.mtu = 9000 carries" \
  '$a [transport]\npayload_bytes = 9024'
mistake "a payload that is no multiple of 64" "payload_bytes = 1000: .*960 or 1024" \
  '$a [transport]\npayload_bytes = 1000'
mistake "pings too rare for the silence" "timeouts.ping_ms = 900: .*a third of" \
  '$a [timeouts]\nping_ms = 900\nsilence_ms = 1000'
mistake "a socket mode that is none" "daemon.socket_mode = .*octal" \
  's|^name = "gw"|name = "gw"\nsocket_mode = "rw"|'
mistake "metrics for everybody" "bad.toml:3: daemon.metrics = .0.0.0.0:9464.* as 127.0.0.1:9464" \
  's|^name = "gw"|name = "gw"\nmetrics = "0.0.0.0:9464"|'
mistake "a name with a folder in it" "bad.toml:2: daemon.name = .a/b.*no '/'" 's|"gw"|"a/b"|'
mistake "a broadcast address" "bad.toml:7: port.0.ip = .*broadcast" 's|10.77.0.1/24|10.77.0.255/24|'
mistake "a neighbor on no link" "neighbor.0.ip = .10.78.0.2.*no \[\[port\]\] .10.77.0.1/24" \
  '$a [[neighbor]]\nip = "10.78.0.2"\nmac = "02:00:00:00:00:01"'
mistake "gpudirect without a GPU" "gpu.staging = .*needs a GPU" '$a [gpu]\nstaging = "gpudirect"'
mistake "an Ethernet address that is none" "neighbor.0.mac = .*Ethernet address" \
  '$a [[neighbor]]\nip = "10.77.0.2"\nmac = "02:00:00:00:00"'

refused "an unknown flag" "lanes.poling|unknown key \"poling\"" \
  -- --check --config "$good" --lanes.poling busy
refused "a flag without its value" "lanes.polling: needs a value" \
  -- --check --config "$good" --lanes.polling
refused "an option that is gradwire's nowhere" "not an option of gradwired" \
  -- --check --config "$good" --fast

# What can only be seen when it starts.
base=(--no-pci --no-telemetry --huge-unlink --file-prefix "gw$$" -m 64)
on_exit rm -rf "/run/dpdk/gw$$"
cpus=$(allowed_cpus)
socket=$run_dir/gw.sock
refused "one lcore" "1 lcore is not enough" --lcores "0@($cpus)" "${base[@]}" \
  --vdev "$(memif_vdev 0 server 0)" -- --config "$good" --daemon.control_socket "$socket"
refused "no hugepages" "hugepages" --lcores "0@($cpus),1@($cpus)" "${base[@]}" --no-huge \
  --vdev "$(memif_vdev 0 server 0)" -- --config "$good" --daemon.control_socket "$socket"
refused "a device that is not there" "net_memif0" --lcores "0@($cpus),1@($cpus)" "${base[@]}" \
  -- --config "$good" --daemon.control_socket "$socket"
vdev=$(memif_vdev 0 server 0)
refused "a device whose frames are too short" "its MTU of 1186 is too small for" \
  --lcores "0@($cpus),1@($cpus)" "${base[@]}" --vdev "${vdev/bsize=9216/bsize=1200}" \
  -- --config "$good" --daemon.control_socket "$socket" --port.0.mtu auto
sed 's|net_memif0|net_null0|' "$good" >"$run_dir/null.toml"
refused "no CRC of payloads on a port that is not in memory" \
  "port net_null0: transport.integrity = link .*set it to payload" \
  --lcores "0@($cpus),1@($cpus)" "${base[@]}" --vdev net_null0 \
  -- --config "$run_dir/null.toml" --daemon.control_socket "$socket" --transport.integrity link
refused "a socket in a place that cannot be made" "no-such/folder" \
  --lcores "0@($cpus),1@($cpus)" "${base[@]}" --vdev "$(memif_vdev 0 server 0)" \
  -- --config "$good" --daemon.control_socket "$run_dir/no-such/folder/gw.sock"
refused "isolation that this machine does not have" "isolated" \
  --lcores "0@($cpus),1@($cpus)" "${base[@]}" --vdev "$(memif_vdev 0 server 0)" \
  -- --config "$good" --daemon.control_socket "$socket" --daemon.require_isolated true
[[ ! -e $socket ]] || fail "a daemon that did not start left its control socket behind"
step "a stranger asks for help"
"$gradwired" --help >"$run_dir/out" 2>&1 || fail "--help fails"
for word in --config --check --lcores control_socket payload_bytes; do
  grep -q -- "$word" "$run_dir/out" || fail "--help does not mention $word"
done
