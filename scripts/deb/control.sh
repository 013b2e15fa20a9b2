#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# control.sh SOURCE STAGE VERSION: DEBIAN/ of the package: what it depends on, as its programs say,
# its configuration files, and what happens when it is installed and removed.
set -euo pipefail
source=$1 stage=$2 version=$3
package=$stage/gradwire
mkdir -p "$package/DEBIAN" "$stage/debian"
printf 'Source: gradwire\n\nPackage: gradwire\nArchitecture: any\n' >"$stage/debian/control"
mapfile -t files < <(find "$package/usr/bin" "$package/usr/lib" -type f \
  \( -perm -100 -o -name '*.so*' \) -exec sh -c 'head -c 4 "$1" | grep -q ELF' x {} \; -print)
depends=$(cd "$stage" && dpkg-shlibdeps -O --ignore-missing-info \
  -l"$package/usr/lib/x86_64-linux-gnu" "${files[@]}" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[[ -n $depends ]] || { echo "dpkg-shlibdeps found no libraries" >&2 && exit 1; }
# Drivers are loaded at run time, so no program names them.
drivers="librte-meta-allpmds | librte-net-e1000-23, librte-mempool-stack23, librte-mempool-ring23"
cat >"$package/DEBIAN/control" <<TEXT
Package: gradwire
Version: $version
Architecture: amd64
Maintainer: gradwire <gradwire@localhost>
Installed-Size: $(du -sk "$package" | cut -f1)
Depends: $depends, $drivers, dpdk, pciutils, kmod, iproute2
Recommends: ethtool, python3
Suggests: python3-torch
Section: net
Priority: optional
Description: sums gradients of a training job over Ethernet, past the kernel
 A daemon on each host drives the NIC with DPDK. The daemons form a ring, and each adds its own
 host's gradient to the packets that pass through it. Processes hand gradients over in shared
 hugepages, by a C library or a PyTorch hook.
TEXT
(cd "$package" && find etc -type f | sed 's#^#/#' | sort) >"$package/DEBIAN/conffiles"
(cd "$package" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$package/DEBIAN/md5sums"
for script in postinst prerm postrm; do
  install -m 755 "$source/scripts/deb/$script" "$package/DEBIAN/$script"
done
