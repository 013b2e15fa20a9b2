# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What a virtual machine boots: the distribution's kernel, and a root of its packages that is small
# enough to be the initramfs, so that no disk is needed. Made once, and kept in $vm_folder; what is
# built here is laid over it for each run.

# The kernel's modules that the guest needs, by their folders below kernel/.
vm_module_folders=(drivers/net/ethernet/intel/e1000e drivers/net/virtio_net.ko
  drivers/net/net_failover.ko net/core/failover.ko drivers/virtio drivers/vfio drivers/ptp
  drivers/pps virt/lib/irqbypass.ko arch/x86/kvm
  drivers/infiniband/core drivers/infiniband/sw/rxe net/ipv4/udp_tunnel.ko
  net/ipv6/ip6_udp_tunnel.ko crypto/crc32_generic.ko arch/x86/crypto/crc32-pclmul.ko)
# apt-get's names: what dpdk-devbind.py, setup-host.sh and the stories run, and drivers, which no
# program names.
vm_abi=$(dpdk_abi)
vm_packages=(kmod iproute2 iputils-ping ethtool pciutils procps numactl python3-minimal dpdk
  python3-numpy systemd systemd-sysv udev adduser ibverbs-providers bpftrace
  "librte-net-e1000-$vm_abi" "librte-net-virtio$vm_abi" "librte-bus-pci$vm_abi"
  "librte-bus-vdev$vm_abi" "librte-mempool-ring$vm_abi" "librte-mempool-stack$vm_abi")
vm_programs=(gradwired gradwire gradwire-perf)

# vm_archive: where this machine takes Debian from.
vm_archive() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk -v release="$(debian_codename)" '$2 == release && $3 == "main" {print $1; exit}'
}

# vm_archive_has RELEASE: whether it answers, and has that release. What it says is in
# $vm_folder/mirror.log.
vm_archive_has() {
  local archive
  archive=$(vm_archive)
  /usr/lib/apt/apt-helper -o Acquire::Retries=1 -o Acquire::http::Timeout=20 download-file \
    "${archive%/}/dists/$1/Release" "$vm_folder/Release" >"$vm_folder/mirror.log" 2>&1
}

# vm_base_root FOLDER [RELEASE]: Debian's smallest root, by debootstrap; kept as an archive. The
# release is this machine's own unless another is named, as in trixie.
vm_base_root() {
  local into=$1 own release kept
  own=$(debian_codename)
  release=${2:-$own}
  kept=$vm_folder/base-$release.tar
  [[ -s $kept ]] || vm_base_archive "$kept" "$release"
  mkdir -p "$into"
  tar -C "$into" -xf "$kept"
  # The machine's own sources: its proxies and keys too. Others than Debian's may have nothing for
  # another release.
  rm -f "$into/etc/apt/sources.list"
  cp -a /etc/apt/. "$into/etc/apt/"
  if [[ $release != "$own" ]]; then
    rm -rf "$into/etc/apt/sources.list.d"
    printf 'deb %s %s main\n' "$(vm_archive)" "$release" >"$into/etc/apt/sources.list"
  fi
  cp -L /etc/resolv.conf "$into/etc/" 2>/dev/null || true
}

# vm_base_archive FILE RELEASE: debootstrap takes no path with a space, so it works in a temporary
# folder, which goes also if it fails. Its script for any release since 2020 is the same, so that a
# release which it does not know by name is made too.
vm_base_archive() {
  local kept=$1 release=$2 made log=$vm_folder/debootstrap.log status=0
  made=$(mktemp -d /var/tmp/gradwire-root-XXXXXX)
  on_exit rm -rf --one-file-system "$made"
  step "a root of Debian's $release, by debootstrap"
  with_progress 30 "$log" debootstrap debootstrap --variant=minbase "$release" "$made" \
    "$(vm_archive)" /usr/share/debootstrap/scripts/sid || status=$?
  if ((status == 0)); then
    chmod 755 "$made" # the root's own "/", which mktemp closes to others
    tar -C "$made" -cf "$kept.part" .
    mv "$kept.part" "$kept"
  fi
  rm -rf --one-file-system "$made"
  ((status == 0)) || vm_cannot "debootstrap fails: $(tail -n 1 "$log")"
}

# vm_library_packages: the packages of the libraries that our programs are linked to, a name a line.
# The smallest root has the C library's, which dpkg knows by another folder.
vm_library_packages() {
  local program
  for program in "${vm_programs[@]}"; do ldd "$vm_build/app/$program/$program"; done |
    awk '$3 ~ "^/" {print $3}' | sort -u | xargs readlink -f |
    { xargs dpkg -S 2>/dev/null || true; } | cut -d: -f1 | sort -u
}

# vm_root: $vm_folder/root has the packages; $vm_folder/kernel the kernel and its modules.
vm_root() {
  local root=$vm_folder/root log=$vm_folder/packages.log wanted libraries
  mapfile -t libraries < <(vm_library_packages)
  wanted=$({ cat "${BASH_SOURCE[0]}" && echo "${libraries[*]}"; } | sha256sum | cut -d' ' -f1)
  if [[ $(cat "$vm_folder/made-of" 2>/dev/null) == "$wanted" ]]; then
    step "root and kernel: there from an earlier run"
    return
  fi
  rm -rf "$root" "$vm_folder/kernel"
  vm_base_root "$root"
  step "packages of the guest"
  with_progress 30 "$log" "package lists" chroot "$root" apt-get update ||
    vm_cannot "the root's package lists do not come: $(tail -n 1 "$log")"
  with_progress 30 "$log" packages chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
    apt-get -y -q install --no-install-recommends "${vm_packages[@]}" \
    "${libraries[@]}" ||
    vm_cannot "the guest's packages do not install: $(grep -m1 '^E:' "$log" || tail -n 1 "$log")"
  vm_kernel
  # What no story reads only makes the boot longer.
  rm -rf "$root"/usr/share/{doc,man,locale,info} "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/*
  printf '%s\n' "$wanted" >"$vm_folder/made-of"
}

vm_kernel() {
  local name folder=$vm_folder/kernel item from version
  step "the distribution's kernel"
  mkdir -p "$folder"
  name=$(apt-cache depends linux-image-amd64 | awk '/Depends:/ {print $2; exit}')
  (cd "$folder" && apt-get download -q "$name" >"$folder/log" 2>&1) ||
    vm_cannot "the kernel $name does not come: $(tail -n 1 "$folder/log")"
  dpkg -x "$folder/$name"*.deb "$folder/unpacked"
  cp "$folder"/unpacked/boot/vmlinuz-* "$folder/vmlinuz"
  # Debian 13 has them below usr/, and compressed.
  for from in "$folder"/unpacked/{,usr/}lib/modules/*; do [[ ! -d $from ]] || break; done
  version=$(basename "$from")
  for item in "${vm_module_folders[@]}"; do
    [[ ! -e $from/kernel/$item.xz ]] || item=$item.xz
    [[ -e $from/kernel/$item ]] || continue
    mkdir -p "$vm_folder/root/lib/modules/$version/kernel/$(dirname "$item")"
    cp -r "$from/kernel/$item" "$vm_folder/root/lib/modules/$version/kernel/$(dirname "$item")/"
  done
  cp "$from"/modules.{order,builtin,builtin.modinfo} "$vm_folder/root/lib/modules/$version/"
  depmod -b "$vm_folder/root" "$version"
  rm -rf "$folder/unpacked" "$folder/$name"*.deb
}

# vm_initramfs FILE: the root with what is built here, and the guest's stories. Two archives one
# after the other are one to the kernel, so the large one is made once.
vm_initramfs() {
  local out=$1 over=$vm_folder/overlay base=$vm_folder/root.cpio program
  if [[ ! -s $base || $base -ot $vm_folder/made-of ]]; then
    (cd "$vm_folder/root" && find . -xdev -print0 |
      cpio -0 -o -H newc --quiet) >"$base.part"
    mv "$base.part" "$base"
  fi
  rm -rf "$over"
  mkdir -p "$over/opt/gradwire/bin" "$over/opt/gradwire/vm"
  for program in "${vm_programs[@]}"; do
    strip -o "$over/opt/gradwire/bin/$program" "$vm_build/app/$program/$program"
    # As in a build folder, where scripts/compare.sh looks.
    mkdir -p "$over/opt/gradwire/build/app/$program"
    ln -s "/opt/gradwire/bin/$program" "$over/opt/gradwire/build/app/$program/"
  done
  cp "$vm_build"/lib/client/libgradwire.so* "$over/opt/gradwire/bin/" 2>/dev/null || true
  strip "$over"/opt/gradwire/bin/libgradwire.so* 2>/dev/null || true
  cp -r "$repo_root/scripts" "$repo_root/python" "$over/opt/gradwire/"
  mkdir -p "$over/opt/gradwire/test/system"
  cp -r "$repo_root/test/reference" "$over/opt/gradwire/test/"
  cp -r "$repo_root"/test/system/{programs,hostile} "$over/opt/gradwire/test/system/"
  cp "$repo_root"/test/vm/guest/* "$over/opt/gradwire/vm/"
  [[ -z ${vm_packages_folder:-} ]] || cp "$vm_packages_folder"/gradwire_*.deb "$over/opt/gradwire/"
  mkdir -p "$over/etc/systemd/system"
  cp "$repo_root/test/vm/guest/gradwire-story.service" "$over/etc/systemd/system/"
  install -m 755 "$repo_root/test/vm/guest/init.sh" "$over/init"
  (cd "$over" && find . -print0 | cpio -0 -o -H newc --quiet) >"$vm_folder/overlay.cpio"
  cat "$base" "$vm_folder/overlay.cpio" >"$out"
}
