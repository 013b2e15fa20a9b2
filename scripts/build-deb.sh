#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds gradwire's Debian package: daemon, CLI, bench, client library and Python package, systemd
# unit, user, and setup-host.sh.
. "$(dirname "$0")/lib/setup.sh"

usage() {
  cat <<TEXT
scripts/build-deb.sh [--build FOLDER] [--output FOLDER] [--revision N] [--no-setup]

  --build FOLDER   a separate build folder, because its prefix is /usr; default build-deb
  --output FOLDER  where to write gradwire_VERSION_amd64.deb; default the build folder
  --revision N     Debian revision; default 1
  --no-setup       do not install packages
TEXT
}
folder=$repo_root/build-deb output='' revision=1 setup=1
while (($# > 0)); do
  case $1 in
    --build) folder=${2:?--build needs a value} && shift ;;
    --output) output=${2:?--output needs a value} && shift ;;
    --revision) revision=${2:?--revision needs a value} && shift ;;
    --no-setup) setup=0 ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  shift
done
folder=$(realpath -m "$folder")
output=$(realpath -m "${output:-$folder}")
[[ $revision =~ ^[0-9]+$ ]] || die "--revision $revision must be a number."

if ((setup)); then
  need_root
  need_debian_12
  install_packages build deb
  fetch_dpdk_headers
fi
for program in dpkg-deb dpkg-shlibdeps strip; do
  command -v "$program" >/dev/null || die "there is no $program: apt-get install dpkg-dev binutils"
done
# What is installed, and nothing besides.
build_targets=(gradwired gradwire:executable gradwire:shared_library gradwire-perf)
if [[ -f $(dpdk_headers_folder)/gpudev_driver.h ]]; then
  build_targets+=(rte_gpu_emu rte_gpu_cuda)
else
  note "the package has no GPU drivers: DPDK's driver headers are missing"
fi
build_tree "$folder" gcc --buildtype debugoptimized --prefix /usr --libdir lib/x86_64-linux-gnu \
  -Dtests=false
mkdir -p "$output"

version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$repo_root/meson.build")-$revision
stage=$folder/package
rm -rf "$stage"
step "package: gradwire $version"
DESTDIR=$stage/gradwire meson install -C "$folder" --no-rebuild >"$folder/install.log" 2>&1 ||
  build_failed "$folder/install.log" "meson install"
"$repo_root/scripts/deb/lay_out.sh" "$repo_root" "$stage/gradwire"
"$repo_root/scripts/deb/control.sh" "$repo_root" "$stage" "$version"
package=$output/gradwire_${version}_amd64.deb
dpkg-deb --root-owner-group --build "$stage/gradwire" "$package" >"$folder/dpkg-deb.log" 2>&1 ||
  build_failed "$folder/dpkg-deb.log" "dpkg-deb"
note "$package, $(($(stat -c %s "$package") / 1024)) KiB"
