# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Which versions of what gradwire depends on are here: doc/releases.md says why each is needed.

# versions_show: a line of the kernel and the compilers, one of the packages of the sets [build],
# [run] and [train] that are installed.
versions_show() {
  local found
  found=$(for tool in g++ clang nvcc meson ninja "$python"; do
    command -v "$tool" >/dev/null || continue
    # nvcc says its release in a line of its own.
    printf '%s %s, ' "${tool##*/}" "$("$tool" --version |
      grep -o '[0-9]\+\.[0-9][0-9.]*' | head -n 1)"
  done)
  note "Linux $(uname -r), ${found%, }"
  found=$(packages_of build run train | sort -u |
    xargs dpkg-query -W -f '${db:Status-Abbrev}${Package} ${Version}\n' 2>/dev/null |
    sed -n 's/^ii *//p' | paste -sd, | sed 's/,/, /g')
  note "$found"
}
