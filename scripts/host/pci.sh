# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# PCI devices and their interfaces, as sysfs tells of them.

pci_devices=/sys/bus/pci/devices

# pci_resolve DEVICE: the address of an interface's NIC, or the address itself in its long form. A
# NIC that was bound is still known by the interface that it had.
pci_resolve() {
  local device=$1 target
  if [[ -e $root$pci_devices/$device ]]; then
    printf '%s' "$device"
  elif [[ -e $root$pci_devices/0000:$device ]]; then
    printf '0000:%s' "$device"
  elif [[ -e $root/sys/class/net/$device ]]; then
    target=$(readlink -f "$root/sys/class/net/$device/device" 2>/dev/null) || target=
    # A virtio interface is below a bus of its own, below its PCI device.
    while [[ -n $target && $target != / && ! -e $root$pci_devices/$(basename "$target") ]]; do
      target=$(dirname "$target")
    done
    [[ -n $target && $target != / ]] || die "$device is not a PCI device, so it cannot be bound."
    basename "$target"
  elif record_address "$device"; then
    return 0
  else
    die "there is no device '$device'." "dpdk-devbind.py --status-dev net lists all devices."
  fi
}

# pci_driver ADDRESS: its driver, nothing without.
pci_driver() {
  local link=$root$pci_devices/$1/driver
  [[ -L $link ]] && basename "$(readlink "$link")"
  return 0
}

# pci_interfaces ADDRESS: its interfaces, a name a line.
pci_interfaces() {
  local folder
  for folder in "$root$pci_devices/$1"/net/* "$root$pci_devices/$1"/virtio*/net/*; do
    [[ -e $folder ]] && basename "$folder"
  done
  return 0
}

pci_is_network() { [[ $(read_value "$pci_devices/$1/class") == 0x02* ]]; }

# pci_group_members ADDRESS: everything in its IOMMU group, itself included.
pci_group_members() {
  local folder
  for folder in "$root$pci_devices/$1"/iommu_group/devices/*; do
    [[ -e $folder || -L $folder ]] && basename "$folder"
  done
  return 0
}
