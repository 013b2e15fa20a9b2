#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds gradwire's Debian package by debhelper (debian/): daemon, CLI, bench, client library and
# Python package, systemd unit, user, and setup-host.sh.
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
  need_debian
  install_packages build deb
  fetch_dpdk_headers
fi
command -v dh >/dev/null || die "there is no dh: apt-get install debhelper"
[[ -f $(dpdk_headers_folder)/gpudev_driver.h ]] ||
  note "the package has no GPU drivers: DPDK's driver headers are missing"
mkdir -p "$folder" "$output"

version=$(sed -n "s/^  version: '\(.*\)',/\1/p" "$repo_root/meson.build")-$revision
package=$output/gradwire_${version}_amd64.deb log=$folder/package.log
step "package: gradwire $version, by debian/rules"
cd "$repo_root"
export DEB_BUILD_OPTIONS=parallel=$(nproc)
export GRADWIRE_DEB_BUILD=$folder GRADWIRE_DEB_OUTPUT=$output GRADWIRE_DEB_REVISION=$revision
if command -v ccache >/dev/null; then export CC="ccache gcc" CXX="ccache g++"; fi
debian/rules clean >"$log" 2>&1 || build_failed "$log" "debian/rules clean"
with_progress 20 "$log" "building" debian/rules binary || build_failed "$log" "debian/rules binary"
debian/rules clean >/dev/null 2>&1
note "$package, $(($(stat -c %s "$package") / 1024)) KiB"
