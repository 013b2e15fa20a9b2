# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# How stories, which run as root, use the Lua dissector. Wireshark 4.4 loads no script that root
# names, but it loads those of its own folder: that is another one here, for tshark alone.

# dissect ARG...: tshark with the dissector.
dissect() {
  local folder
  folder=$(tshark -G folders 2>/dev/null | sed -n 's/^Global Lua Plugins:[[:space:]]*//p')
  [[ -d $folder ]] || die "tshark -G folders names no folder of Lua scripts, but '$folder'."
  # shellcheck disable=SC2016
  unshare --mount bash -ec 'mount -t tmpfs none "$1"; cp "$2" "$1/"; shift 2; exec tshark "$@"' \
    bash "$folder" "$repo_root/scripts/wireshark/gradwire.lua" "$@"
}
