#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# set_link.sh on|off LINK...: QEMU sets these links up or down, as if a cable was put in or pulled
# out. The third serial port leads to its monitor (vm_monitor_arguments of scripts/vm/machine.sh).
set -uo pipefail
exec 7<>/dev/ttyS2
asked=0

# ask TEXT: `"execute": ...`. Waits for the answer, at most half a minute; what QEMU says meanwhile
# has another id, or none.
ask() {
  local line id=$$-$((asked++))
  printf '{%s, "id": "%s"}\n' "$1" "$id" >&7
  while IFS= read -r -t 30 line <&7; do
    [[ $line == *"\"id\": \"$id\""* ]] || continue
    [[ $line == *'"error"'* ]] || return 0
    printf 'QEMU does not do %s: %s\n' "$1" "$line"
    return 1
  done
  printf 'QEMU does not answer %s within 30 s\n' "$1"
  return 1
}

# The port echoes until its settings are made, and so may have said half of QEMU's greeting. This
# byte, which no JSON has, ends that.
printf '\xff\n' >&7
# It does nothing else before this, and complains if it has been asked already.
ask '"execute": "qmp_capabilities"' >/dev/null
up=false
[[ $1 != on ]] || up=true
for link in "${@:2}"; do
  ask "\"execute\": \"set_link\", \"arguments\": {\"name\": \"$link\", \"up\": $up}" || exit 1
done
