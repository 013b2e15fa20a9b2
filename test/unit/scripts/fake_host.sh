# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# A host made of files, for tests of setup-host.sh: two NUMA nodes, eight CPUs, NICs, and commands
# that change the files as the kernel would. The caller sets $tree.

fake_file() {
  mkdir -p "$tree$(dirname "$1")"
  printf '%s\n' "$2" >"$tree$1"
}

# fake_nic ADDRESS DRIVER INTERFACE [GROUP]
fake_nic() {
  local device=/sys/devices/pci0000:00/$1
  fake_file "$device/class" 0x020000
  fake_file "$device/driver_override" '(null)'
  fake_file "$device/modalias" "pci:fake-$2"
  mkdir -p "$tree/sys/bus/pci/drivers/$2" "$tree/sys/bus/pci/devices" "$tree/sys/class/net"
  ln -s "../../../devices/pci0000:00/$1" "$tree/sys/bus/pci/devices/$1"
  ln -s "../../../bus/pci/drivers/$2" "$tree$device/driver"
  fake_file "$device/net/$3/mtu" 1500
  fake_file "$device/net/$3/flags" 0x1003
  ln -s "../../devices/pci0000:00/$1/net/$3" "$tree/sys/class/net/$3"
  ln -s "../.." "$tree$device/net/$3/device"
  if [[ -n ${4:-} ]]; then
    mkdir -p "$tree/sys/kernel/iommu_groups/$4/devices"
    ln -s "../../../../devices/pci0000:00/$1" "$tree/sys/kernel/iommu_groups/$4/devices/$1"
    ln -s "../../../kernel/iommu_groups/$4" "$tree$device/iommu_group"
  fi
}

fake_host() {
  local node cpu
  for node in 0 1; do
    fake_file "/sys/devices/system/node/node$node/hugepages/hugepages-2048kB/nr_hugepages" 0
    fake_file "/sys/devices/system/node/node$node/hugepages/hugepages-1048576kB/nr_hugepages" 0
  done
  fake_file /sys/devices/system/cpu/online 0-7
  for cpu in 0 1 2 3 4 5 6 7; do
    fake_file "/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list" \
      "$((cpu % 4)),$((cpu % 4 + 4))"
  done
  fake_file /proc/cmdline 'BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet'
  fake_file /proc/cpuinfo 'vendor_id : GenuineIntel'
  fake_file /proc/meminfo 'Hugepagesize:       2048 kB'
  fake_file /proc/mounts 'sysfs /sys sysfs rw 0 0'
  fake_file /proc/sys/vm/drop_caches 0
  fake_file /proc/sys/vm/compact_memory 0
  fake_file /etc/default/grub 'GRUB_CMDLINE_LINUX_DEFAULT=quiet'
  mkdir -p "$tree/dev/hugepages" "$tree/var/lib" "$tree/sys/module" "$tree/etc/security/limits.d" \
    "$tree/etc/udev/rules.d" "$tree/etc/modules-load.d"
  fake_nic 0000:3b:00.0 ice eth1 7
  fake_nic 0000:3b:00.1 ice eth2 8
  fake_nic 0000:01:00.0 e1000e eth0 9
  fake_nic 0000:02:00.0 e1000e eth3 10
  fake_nic 0000:5e:00.0 mlx5_core eth4 11
  fake_nic 0000:06:00.0 ice eth6 12
  fake_file /sys/devices/pci0000:00/0000:3b:00.1/sriov_totalvfs 8
  fake_file /sys/devices/pci0000:00/0000:3b:00.1/sriov_numvfs 0
  fake_file /sys/devices/pci0000:00/0000:00:02.0/class 0x030000
  ln -s ../../../devices/pci0000:00/0000:00:02.0 "$tree/sys/bus/pci/devices/0000:00:02.0"
  # The default route is over a VLAN of a bond, whose member is eth0.
  mkdir -p "$tree/sys/devices/virtual/net/bond0" "$tree/sys/devices/virtual/net/bond0.5"
  ln -s ../../devices/virtual/net/bond0 "$tree/sys/class/net/bond0"
  ln -s ../../devices/virtual/net/bond0.5 "$tree/sys/class/net/bond0.5"
  ln -s ../bond0 "$tree/sys/devices/virtual/net/bond0.5/lower_bond0"
  ln -s ../../../pci0000:00/0000:01:00.0/net/eth0 \
    "$tree/sys/devices/virtual/net/bond0/lower_eth0"
}

# fake_command NAME: its text is standard input; every call is noted.
fake_command() {
  {
    printf '#!/bin/bash\ntree=%q\nprintf "%%s %%s\\n" %q "$*" >>%q\n' "$tree" "$1" "$calls"
    cat
  } >"$commands/$1"
  chmod +x "$commands/$1"
}

fake_commands() {
  mkdir -p "$commands"
  fake_command modprobe <<'TEXT'
case "$1" in
  --resolve-alias) printf '%s\n' "${2#pci:fake-}" ;;
  -r) rmdir "$tree/sys/module/${2//-/_}" "$tree/sys/bus/pci/drivers/$2"
    rm -r "$tree/sys/module/vfio" ;;
  *) mkdir "$tree/sys/module/${1//-/_}" "$tree/sys/bus/pci/drivers/$1"
    mkdir -p "$tree/sys/module/vfio/parameters"
    echo N >"$tree/sys/module/vfio/parameters/enable_unsafe_noiommu_mode" ;;
esac
TEXT
  # As the real one: it leaves devices with routes alone, and its exit status is 0 all the same.
  fake_command dpdk-devbind.py <<'TEXT'
for address in "${@:2}"; do
  device=$tree/sys/bus/pci/devices/$address
  rm -f "$device/driver"
  if [[ $1 == --bind=* ]]; then
    driver=${1#--bind=}
    [[ -d $tree/sys/bus/pci/drivers/$driver ]] || exit 1
    ln -s "../../../bus/pci/drivers/$driver" "$device/driver"
  fi
  printf '(null)\n' >"$device/driver_override"
  kept=$tree.interfaces/$address
  if [[ ${driver:-} == vfio-pci ]]; then
    mkdir -p "$kept"
    mv "$device/net" "$kept/"
  elif [[ -n ${driver:-} && -d $kept/net ]]; then
    mv "$kept/net" "$device/"
    # A kernel whose interfaces udev does not name: the file says which name is free.
    if [[ -e $tree.first_free_name ]]; then
      "$(dirname "$0")/ip" link set dev "$(ls "$device/net")" name "$(cat "$tree.first_free_name")"
    fi
    for name in "$device"/net/*; do
      printf '1500\n' >"$name/mtu"
      printf '0x1002\n' >"$name/flags"
    done
  fi
done
exit 0
TEXT
  fake_command ip <<'TEXT'
case "$*" in
  '-4 -o route show default') echo 'default via 10.0.0.1 dev bond0.5 proto dhcp' ;;
  '-6 -o route show default') ;;
  '-4 -o route show dev eth6') echo '10.6.0.0/24 proto kernel scope link src 10.6.0.1' ;;
  *'route show dev'*) echo 'fe80::/64 proto kernel' ;;
  '-o addr show') echo '4: eth3    inet 192.0.2.7/24 brd 192.0.2.255 scope global eth3' ;;
  '-o route get 192.0.2.99') echo '192.0.2.99 dev eth3 src 192.0.2.7 uid 0' ;;
  'link set dev '*' name '*)
    device=$(readlink "$tree/sys/class/net/$4")
    mv "$tree/sys/class/net/$device" "$(dirname "$tree/sys/class/net/$device")/$6"
    ln -s "$(dirname "$device")/$6" "$tree/sys/class/net/$6"
    rm "$tree/sys/class/net/$4" ;;
  'link set dev '*' mtu '*) printf '%s\n' "$6" >"$tree/sys/class/net/$4/mtu" ;;
  'link set dev '*' up') printf '0x1003\n' >"$tree/sys/class/net/$4/flags" ;;
  *) exit 1 ;;
esac
TEXT
  fake_command mount <<'TEXT'
[[ $1 == -t && $2 == hugetlbfs ]] || exit 1
printf 'none %s hugetlbfs rw,%s 0 0\n' "${6#"$tree"}" "$4" >>"$tree/proc/mounts"
TEXT
  fake_command umount <<'TEXT'
sed -i "\\# ${1#"$tree"} #d" "$tree/proc/mounts"
TEXT
  fake_command update-grub <<'TEXT'
cat "$tree/etc/default/grub" "$tree"/etc/default/grub.d/*.cfg >"$tree.grub.cfg" 2>/dev/null
exit 0
TEXT
  fake_command ethtool <<'TEXT'
state=$tree.pause.$2
[[ -e $state ]] || echo 'on on' >"$state"
if [[ $1 == -A ]]; then
  echo "$4 $6" >"$state"
else
  read -r rx tx <"$state"
  printf 'Pause parameters for %s:\nAutonegotiate:  off\nRX:\t\t%s\nTX:\t\t%s\n' "$2" "$rx" "$tx"
fi
TEXT
  fake_command dcb <<'TEXT'
state=$tree.dcb.$1
touch "$state"
case "$1 $2" in
  'pfc show') [[ $4 == eth4 ]] || exit 1
    [[ -s $state ]] || echo '0:off 1:off 2:off 3:off 4:off 5:off 6:off 7:off' >"$state"
    printf 'prio-pfc %s \n' "$(cat "$state")" ;;
  'pfc set') echo "${*:6}" >"$state" ;;
  'app show') printf 'dscp-prio %s\n' "$(paste -sd' ' "$state")" ;;
  'app add') echo "$6" >>"$state" ;;
  'app del') sed -i "/^$6\$/d" "$state" ;;
  *) exit 1 ;;
esac
TEXT
}
