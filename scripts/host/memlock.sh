# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# How much memory daemons may lock: vfio counts what a device may reach by DMA as locked. A daemon
# that systemd starts takes its own unit's LimitMEMLOCK instead.

memlock_file=/etc/security/limits.d/90-gradwire.conf

memlock_check() {
  [[ -z $memlock || $memlock == unlimited || $memlock =~ ^[1-9][0-9]*$ ]] ||
    die "--memlock $memlock must be a number of MiB or 'unlimited'."
}

memlock_apply() {
  local limit=$memlock
  [[ -n $memlock ]] || return 0
  if ((now_only)); then
    printf '%s\n' "--memlock takes effect only at the next login, so with --now it does nothing"
    return 0
  fi
  [[ $limit == unlimited ]] || limit=$((memlock * 1024))
  make_file "$memlock_file" "from the next login on" <<TEXT
# Made by gradwire's setup-host.sh; --undo removes it.
@gradwire - memlock $limit
root - memlock $limit
TEXT
}
