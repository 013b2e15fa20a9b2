#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# gradwire doctor finds the largest packet that comes through to a peer, says so of a narrow place
# on the way, and its exit status says whether the host is fit.
. "$(dirname "$0")/../_init.sh"

gradwire=${GRADWIRE_CLI:-$build_folder/app/gradwire/gradwire}
[[ -x $gradwire ]] || skip "there is no gradwire at $gradwire: build first"

# a -- r -- b: r forwards, and the link from r to b is made narrow.
make_namespaces 9000
netns_r=gw$$r
ip netns add "$netns_r"
on_exit ip netns del "$netns_r"
ip -n "$netns_b" link set gwb netns "$netns_r"
ip -n "$netns_r" link set gwb mtu 9000 up
ip -n "$netns_r" link add gwr type veth peer name gwb netns "$netns_b"
ip -n "$netns_r" link set gwr mtu 9000 up
ip -n "$netns_b" link set gwb mtu 9000 up
ip -n "$netns_a" addr add 10.78.0.1/24 dev gwa
ip -n "$netns_r" addr add 10.78.0.2/24 dev gwb
ip -n "$netns_r" addr add 10.78.1.2/24 dev gwr
ip -n "$netns_b" addr add 10.78.1.1/24 dev gwb
ip -n "$netns_a" route add default via 10.78.0.2
ip -n "$netns_b" route add default via 10.78.1.2
ip netns exec "$netns_r" sysctl -qw net.ipv4.ip_forward=1

# An empty tree: what this machine is like is not the story's business.
tree=$run_dir/tree
mkdir -p "$tree/proc" "$tree/sys/devices/system/node/node0/hugepages/hugepages-2048kB"
for file in nr free; do
  echo 1024 >"$tree/sys/devices/system/node/node0/hugepages/hugepages-2048kB/${file}_hugepages"
done
echo 'none /dev/hugepages hugetlbfs rw 0 0' >"$tree/proc/mounts"
doctor() {
  local status=0
  ip netns exec "$netns_a" "$gradwire" doctor --root "$tree" "$@" >"$run_dir/doctor.out" 2>&1 ||
    status=$?
  return "$status"
}
out=$run_dir/doctor.out

expect "a path that carries 9000 is fit" doctor --peer 10.78.1.1 --mtu 9000
expect_text "it says so" '^ok +path MTU, 10.78.1.1: 9000 of 9000 bytes through gwa' "$out"
expect_text "and that the host is fit" '^fit: ' "$out"
expect "so is one that carries more than is wanted" doctor --peer 127.0.0.1 --mtu 9000
expect_text "lo has the most that IP can say" \
  '^ok +path MTU, 127.0.0.1: 65535 of 65535 bytes through lo, 9000 wanted' "$out"
if [[ -e /proc/net/if_inet6 ]]; then
  expect "and one of IPv6" doctor --peer ::1 --mtu 9000
  expect_text "that is as long" '^ok +path MTU, ::1: 65535 of 65535 bytes through lo' "$out"
fi

step "a narrow place in the middle"
ip -n "$netns_r" link set gwr mtu 1500
ip -n "$netns_b" link set gwb mtu 1500
! doctor --peer 10.78.1.1 || fail "1500 of 9000 passed for fit"
expect_text "its size" '^fail +path MTU, 10.78.1.1: 1500 of 9000 bytes' "$out"
expect_text "and the fix" 'mtu = 1500' "$out"

step "a peer that does not answer"
! doctor --peer 10.78.0.9 --json || fail "a silent peer passed for fit"
"$python" - "$out" <<'EOS' || fail "the JSON is wrong"
import json, sys
answer = json.load(open(sys.argv[1]))
path = [f for f in answer["findings"] if f["check"] == "path MTU"]
assert answer["fit"] is False and len(path) == 1, answer
assert path[0]["verdict"] == "fail" and "no answer" in path[0]["value"], path
EOS

step "what a configuration asks for decides"
cat >"$run_dir/doctor.toml" <<'EOS'
[[port]]
device = "0000:3b:00.0"
ip = "10.0.0.1/24"
EOS
! doctor --config "$run_dir/doctor.toml" || fail "a NIC that is not there passed for fit"
expect_text "the NIC is missing" '^fail +nic, 0000:3b:00.0: this host has no such device' "$out"
! doctor --cpus 1-x || fail "a wrong list of CPUs passed"
cat >"$run_dir/memif.toml" <<'EOS'
[[port]]
device = "net_memif0"
ip = "10.78.9.1/24"
EOS
expect "a configuration of memif alone" doctor --config "$run_dir/memif.toml"
! grep -E '^(warn|fail).*(IOMMU|vfio|nic)' "$out" || fail "links in memory were asked for NICs"
! grep AES "$out" || fail "a daemon without a key was asked for AES"
{ cat "$run_dir/memif.toml" && printf '[security]\nkey_file = "/cluster.key"\n'; } \
  >"$run_dir/sealed.toml"
echo 'flags : fpu sse2' >"$tree/proc/cpuinfo"

expect "so is one with a key, on a CPU without AES" doctor --config "$run_dir/sealed.toml"
expect_text "which is told" '^warn +AES: this CPU has no instructions for AES .no aes, ' "$out"

step "the configuration check sees what only this host can tell"
# check DEVICE FLAG...
check() {
  ip netns exec "$netns_a" "$gradwired" --check --port.device "$1" --port.ip 10.78.0.1/24 \
    "${@:2}" >"$out" 2>&1
}
expect "the kernel's own address passes" check net_af_xdp0
expect_text "with a warning" \
  '^warning: port net_af_xdp0: ip = 10.78.0.1 is also an address of the kernel, on gwa' "$out"
expect "over memif" check net_memif0
! grep warning "$out" || fail "the kernel does not see memif"
! check net_memif0 --daemon.socket_group gw-nobody || fail "a group that is not there passed"
expect_text "by name" 'daemon.socket_group = gw-nobody: this host has no such group' "$out"
