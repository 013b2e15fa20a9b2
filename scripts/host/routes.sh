# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Which interfaces must stay with the kernel: those of the default route, and of the connection that
# the caller came by.

# default_route_interfaces: IPv4's and IPv6's.
default_route_interfaces() {
  { ip -4 -o route show default && ip -6 -o route show default; } 2>/dev/null |
    awk '{for (i = 1; i < NF; i++) if ($i == "dev") print $(i + 1)}' | sort -u
}

# ssh_connection: "CLIENT PORT SERVER PORT" of the caller. sudo takes it from the environment, so
# the processes that this one descends from are asked too.
ssh_connection() {
  local pid=$PPID stat found
  if [[ -n ${SSH_CONNECTION:-} ]]; then
    printf '%s' "$SSH_CONNECTION"
    return
  fi
  while ((pid > 1)); do
    found=$(tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | sed -n 's/^SSH_CONNECTION=//p') ||
      found=
    if [[ -n $found ]]; then
      printf '%s' "${found%%$'\n'*}"
      return
    fi
    stat=$(cat "/proc/$pid/stat" 2>/dev/null) || return 0
    read -r _ pid _ <<<"${stat##*) }"
  done
}

# ssh_interfaces: that holds the address which the caller connected to, and that leads back to it.
ssh_interfaces() {
  local client server
  read -r client _ server _ <<<"$(ssh_connection)" || true
  [[ -n $client ]] || return 0
  {
    ip -o addr show 2>/dev/null | awk -v want="$server" '
      {split($4, part, "/"); if (part[1] == want) print $2}'
    ip -o route get "$client" 2>/dev/null |
      awk '{for (i = 1; i < NF; i++) if ($i == "dev") print $(i + 1)}'
  } | sort -u
}

# interfaces_below: reads names, prints them and all that they stand on: a bond's or a bridge's
# members, a VLAN's parent.
interfaces_below() {
  local name lower
  while read -r name; do
    [[ -n $name ]] || continue
    printf '%s\n' "${name%%@*}"
    for lower in "$root/sys/class/net/${name%%@*}"/lower_*; do
      [[ -e $lower || -L $lower ]] || continue
      basename "$lower" | sed 's/^lower_//' | interfaces_below
    done
  done | sort -u
}

# routes_through INTERFACE: the first destination that is reached through it, nothing without.
routes_through() {
  { ip -4 -o route show dev "$1"; ip -6 -o route show dev "$1"; } 2>/dev/null |
    awk '$1 !~ /^(fe80::|ff00::|multicast|169\.254\.)/ {print $1; exit}'
}
