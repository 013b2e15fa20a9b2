# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What floods are measured on: two namespaces, $a and $b, joined by a veth (gwa, gwb), and in $b a
# second one (asidea, asideb) for a flood that meets nobody. All have an MTU of 1,500.

# flood_hosts PREFIX
flood_hosts() {
  local device netns name
  a=${1}a
  b=${1}b
  ip netns add "$a" && on_exit ip netns del "$a"
  ip netns add "$b" && on_exit ip netns del "$b"
  ip -n "$a" link add gwa type veth peer name gwb netns "$b"
  ip -n "$b" link add asidea type veth peer name asideb
  for device in "$a gwa" "$b gwb" "$b asidea" "$b asideb"; do
    read -r netns name <<<"$device"
    ip -n "$netns" link set "$name" mtu 1500 up
  done
  daemon_netns=("$a" "$b")
}
