# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The headers that DPDK's drivers need. No package of the distribution has
# them, so they come from the source package of the installed version, checked by apt against the
# signed lists, and are kept outside the tree. drivers/meson.build looks for them there.

dpdk_headers_root=/var/cache/gradwire

# The path of each in the source package, below its top folder.
dpdk_driver_headers=(
  lib/gpudev/gpudev_driver.h
  lib/eal/include/dev_driver.h
  drivers/bus/vdev/bus_vdev_driver.h
  drivers/bus/pci/bus_pci_driver.h
)

# dpdk_headers_folder: of the installed DPDK, by pkg-config's version.
dpdk_headers_folder() {
  printf '%s/dpdk-driver-headers-%s' "$dpdk_headers_root" "$(pkg-config --modversion libdpdk)"
}

# dpdk_source_lists FOLDER: the machine's own package sources, with source packages in place of
# binary ones.
dpdk_source_lists() {
  local file out=$1
  cp /etc/apt/sources.list "$out/0.list" 2>/dev/null || true
  for file in /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
    [[ ! -f $file ]] || cp "$file" "$out/"
  done
  for file in "$out"/*.list; do
    [[ ! -f $file ]] || sed -i -E -n 's/^[[:space:]]*deb(-src)?([[:space:]])/deb-src\2/p' "$file"
  done
  for file in "$out"/*.sources; do
    [[ ! -f $file ]] || sed -i -E 's/^Types:.*/Types: deb-src/I' "$file"
  done
}

# fetch_dpdk_headers: says what it does; where they cannot be had it says why, and the build leaves
# the GPU drivers out. Never fails.
fetch_dpdk_headers() {
  local folder version temporary log
  folder=$(dpdk_headers_folder)
  if [[ -f $folder/gpudev_driver.h ]]; then
    step "DPDK's driver headers: in $folder"
    return 0
  fi
  version=$(dpkg-query -W -f '${Version}' libdpdk-dev)
  step "DPDK's driver headers: from the source package dpdk $version"
  temporary=$(mktemp -d "${TMPDIR:-/tmp}/gradwire-dpdk-XXXXXX")
  on_exit rm -rf "$temporary"
  log=$temporary/log
  if dpdk_headers_unpack "$version" "$folder" "$temporary" >"$log" 2>&1; then
    note "kept in $folder"
  else
    note "they could not be fetched: $(grep -m1 -E '^E:' "$log" || tail -n 1 "$log")"
    note "the build leaves the GPU drivers out"
  fi
  rm -rf "$temporary"
}

# dpdk_headers_unpack VERSION FOLDER TEMPORARY
dpdk_headers_unpack() {
  local version=$1 folder=$2 temporary=$3 archive member header
  mkdir -p "$temporary"/{parts,lists/partial,cache/archives/partial,source}
  dpdk_source_lists "$temporary/parts"
  cat >"$temporary/apt.conf" <<CONF
Dir::State::Lists "$temporary/lists";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "$temporary/parts/";
Dir::Cache "$temporary/cache";
APT::Sandbox::User "root";
Acquire::Retries "3";
CONF
  # A network that drops packets must not delay the set-up for long.
  local apt=(timeout 180 env LC_ALL=C apt-get -q -c "$temporary/apt.conf")
  # A source that is down does not matter while another has the package.
  "${apt[@]}" update || true
  (cd "$temporary/source" && "${apt[@]}" source --download-only "dpdk=$version") || return 1
  archive=$(find "$temporary/source" -name 'dpdk_*.orig.tar.*' ! -name '*.asc' | head -n 1)
  [[ -n $archive ]] || { echo "the source package has no archive"; return 1; }
  mkdir -p "$temporary/include"
  for header in "${dpdk_driver_headers[@]}"; do
    member=$(tar -tf "$archive" --wildcards "*/$header" | head -n 1)
    [[ -n $member ]] || { echo "the source package has no $header"; return 1; }
    tar -xOf "$archive" "$member" >"$temporary/include/${header##*/}" || return 1
  done
  mkdir -p "$dpdk_headers_root" && rm -rf "$folder" && mv "$temporary/include" "$folder"
}
