# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Gives NICs to DPDK and back, by dpdk-devbind.py. What the host cannot do without is refused.

vfio_modules=/etc/modules-load.d/gradwire.conf
vfio_options=/etc/modprobe.d/gradwire.conf
udev_rules=/etc/udev/rules.d/60-gradwire.rules
noiommu_parameter=/sys/module/vfio/parameters/enable_unsafe_noiommu_mode

bind_addresses=()
unbind_addresses=()

bind_check() {
  local device address
  for device in "${bind_devices[@]}" "${unbind_devices[@]}"; do
    [[ -n $device ]] || die "the name of a device is empty."
  done
  for device in "${bind_devices[@]}"; do
    address=$(pci_resolve "$device")
    bind_refuse "$address"
    bind_addresses+=("$address")
  done
  for device in "${unbind_devices[@]}"; do
    address=$(pci_resolve "$device")
    unbind_addresses+=("$address")
  done
  ((${#bind_addresses[@]} + ${#unbind_addresses[@]} == 0)) ||
    need_command dpdk-devbind.py "binding NICs" "dpdk pciutils"
  ((${#bind_addresses[@]} > 0)) || return 0
  [[ $bind_driver =~ ^[a-z0-9_-]+$ ]] || die "'$bind_driver' is not the name of a driver."
  if ((!no_iommu)) && [[ $bind_driver == vfio-pci ]] && ! iommu_is_on; then
    die "the IOMMU is off: vfio-pci cannot take a NIC." \
      "On a machine that has one: setup-host.sh --iommu, reboot, and again." \
      "On one that has none, as most virtual machines: add --no-iommu; then the NIC can write" \
      "anywhere in memory."
  fi
}

iommu_is_on() {
  local group
  for group in "$root"/sys/kernel/iommu_groups/*; do [[ -e $group ]] && return 0; done
  return 1
}

# bind_refuse ADDRESS: ends the script where the NIC must stay, with the reason.
bind_refuse() {
  local address=$1 driver interface route
  pci_is_network "$address" || die "$address is not a network device: its class is" \
    "$(read_value "$pci_devices/$address/class")."
  driver=$(pci_driver "$address")
  [[ $driver != "$bind_driver" ]] || return 0
  case $driver in
    mlx5_core)
      die "$address must stay with mlx5_core: DPDK uses it through that driver (bifurcated)." \
        "Give it to gradwired as it is: -a $address, and device = \"$address\"."
      ;;
    mlx4_core)
      die "$address must stay with mlx4_core: DPDK uses it through that driver (bifurcated)." ;;
    hv_netvsc | mana)
      die "$address must stay with $driver: DPDK uses it together with the kernel." ;;
  esac
  while read -r interface; do
    [[ -n $interface ]] || continue
    if default_route_interfaces | interfaces_below | grep -qxF -- "$interface"; then
      die "$address ($interface) carries the default route: this host would be cut off." \
        "Choose another NIC, or a virtual function of it (--vfs)."
    fi
    if ssh_interfaces | interfaces_below | grep -qxF -- "$interface"; then
      die "$address ($interface) carries the SSH connection that you are using." \
        "Choose another NIC, or come in another way."
    fi
    route=$(routes_through "$interface")
    [[ -z $route ]] || die "$address ($interface) is in use: $route is reached through it." \
      "Take its addresses away first: ip address flush dev $interface"
  done < <(pci_interfaces "$address")
}

bind_apply() {
  local address others=()
  ((${#bind_addresses[@]} > 0)) || return 0
  bind_load_modules
  for address in "${bind_addresses[@]}"; do
    [[ $(pci_driver "$address") == "$bind_driver" ]] || others+=("$address")
  done
  ((${#others[@]} == 0)) || bind_all "${others[@]}"
  ((now_only)) || bind_at_boot
}

bind_load_modules() {
  local module=${bind_driver//-/_}
  if [[ ! -d $root/sys/module/$module ]]; then
    run_recorded modprobe -r "$bind_driver" -- modprobe "$bind_driver"
  fi
  if ((no_iommu)) && ! iommu_is_on; then
    if ((dry_run)) && [[ ! -e $root$noiommu_parameter ]]; then
      say "write Y to $noiommu_parameter: this host has no IOMMU"
    elif [[ $(read_value "$noiommu_parameter") != [Y1] ]]; then
      set_value "$noiommu_parameter" Y "this host has no IOMMU"
    fi
  fi
}

# interface_facts ADDRESS: "NAME UP MTU" of its first interface, dashes where there is none.
interface_facts() {
  local name flags=0 up=down
  name=$(pci_interfaces "$1" | head -n 1)
  if [[ -z $name ]]; then
    printf -- '- - -'
    return
  fi
  flags=$(read_value "/sys/class/net/$name/flags")
  (((${flags:-0} & 1) == 0)) || up=up
  printf '%s %s %s' "$name" "$up" "$(read_value "/sys/class/net/$name/mtu")"
}

# bind_all ADDRESS...: in one call, which looks at every device of the host.
bind_all() {
  local address
  for address in "$@"; do
    bind_group_check "$address"
    say "run: dpdk-devbind.py --bind=$bind_driver $address" \
      "(its driver is $(pci_driver "$address" | grep . || printf none))"
  done
  ((dry_run)) && return 0
  for address in "$@"; do bind_record "$address"; done
  # Its own warnings only: it refuses an interface that has routes without an error.
  dpdk-devbind.py "--bind=$bind_driver" "$@" || die "dpdk-devbind.py failed for $*."
  for address in "$@"; do
    [[ $(pci_driver "$address") == "$bind_driver" ]] ||
      die "$address has driver '$(pci_driver "$address")' after dpdk-devbind.py," \
        "not $bind_driver: dmesg says why the kernel refused."
  done
}

bind_group_check() {
  local address=$1 member others=
  for member in $(pci_group_members "$address"); do
    [[ $member == "$address" || " ${bind_addresses[*]} " == *" $member "* ]] && continue
    case $(pci_driver "$member") in
      '' | pcieport | vfio-pci | pci-stub) ;;
      *) others+=" $member ($(pci_driver "$member"))" ;;
    esac
  done
  [[ -z $others ]] || die "$address shares its IOMMU group with$others:" \
    "vfio takes the group as a whole. Bind those too, or put the NIC into another slot."
}

bind_record() {
  local address=$1 driver override facts
  driver=$(pci_driver "$address")
  override=$(read_value "$pci_devices/$address/driver_override")
  [[ $override != '(null)' ]] || override=
  read -ra facts <<<"$(interface_facts "$address")"
  record bind "$address" "${driver:--}" "${override:--}" "${facts[@]}"
}

# Rules that name the address: udev sets them before the NIC's own driver is loaded.
bind_at_boot() {
  local address rules=
  for address in "${bind_addresses[@]}"; do
    rules+="ACTION==\"add\", SUBSYSTEM==\"pci\", KERNEL==\"$address\",\
 ATTR{driver_override}=\"$bind_driver\"
"
  done
  make_file "$vfio_modules" "loaded at each boot" <<TEXT
# Made by gradwire's setup-host.sh; --undo removes it.
$bind_driver
TEXT
  if ((no_iommu)) && ! iommu_is_on; then
    make_file "$vfio_options" "no IOMMU at the next boot either" <<TEXT
# Made by gradwire's setup-host.sh; --undo removes it.
options vfio enable_unsafe_noiommu_mode=1
TEXT
  fi
  make_file "$udev_rules" "the NIC is DPDK's at each boot" <<TEXT
# Made by gradwire's setup-host.sh; --undo removes it.
${rules%?}
TEXT
}

unbind_apply() {
  local address driver
  for address in "${unbind_addresses[@]}"; do
    driver=$(record_driver "$address") || driver=
    [[ -n $driver ]] || driver=$(pci_driver_of_kernel "$address")
    [[ -n $driver ]] || die "which driver $address had is not recorded, and its modules are not" \
      "known: dpdk-devbind.py --bind=DRIVER $address"
    [[ $(pci_driver "$address") != "$driver" ]] || continue
    say "run: dpdk-devbind.py --bind=$driver $address (its driver is $(pci_driver "$address"))"
    ((dry_run)) && continue
    record bind "$address" "$(pci_driver "$address")" - - - -
    rebind "$address" "$driver"
  done
}

# pci_driver_of_kernel ADDRESS: what the kernel's module table says of it.
pci_driver_of_kernel() {
  local alias
  alias=$(read_value "$pci_devices/$1/modalias")
  [[ -n $alias ]] || return 0
  modprobe --resolve-alias "$alias" 2>/dev/null | grep -v '^vfio' | head -n 1 || true
}

# rebind ADDRESS DRIVER: gives it to that driver, whose module is loaded where it is not.
rebind() {
  local address=$1 driver=$2
  if [[ ! -d $root/sys/bus/pci/drivers/$driver ]]; then modprobe "$driver" || return 1; fi
  # The override would keep every other driver from it.
  [[ ! -e $root$pci_devices/$address/driver_override ]] ||
    write_value "$pci_devices/$address/driver_override" "" || return 1
  dpdk-devbind.py "--bind=$driver" "$address" || return 1
  [[ $(pci_driver "$address") == "$driver" ]]
}

# undo_bind ADDRESS DRIVER OVERRIDE INTERFACE UP MTU
undo_bind() {
  local address=$1 driver=$2 override=$3 interface=$4 up=$5 mtu=$6 name tries=50
  [[ -e $root$pci_devices/$address ]] || return 0  # a virtual function that is gone
  if [[ $driver == - ]]; then
    say "run: dpdk-devbind.py --unbind $address"
    ((dry_run)) && return 0
    dpdk-devbind.py --unbind "$address" || return 1
    write_value "$pci_devices/$address/driver_override" "${override#-}" || true
    return 0
  fi
  [[ $(pci_driver "$address") != "$driver" ]] || return 0
  say "run: dpdk-devbind.py --bind=$driver $address"
  ((dry_run)) && return 0
  rebind "$address" "$driver" || return 1
  [[ $override == - ]] || write_value "$pci_devices/$address/driver_override" "$override" || true
  [[ $interface != - ]] || return 0
  # The driver makes the interface a little later; udev names it within two seconds or not at all.
  while name=$(pci_interfaces "$address" | head -n 1) && [[ $name != "$interface" ]] &&
    ((tries-- > 0)) && [[ -z $name || $tries -ge 30 ]]; do
    sleep 0.1
  done
  [[ -n $name ]] || { printf '%s has no interface again\n' "$address" >&2 && return 1; }
  # Where udev names nothing the kernel takes its first free name.
  if [[ $name != "$interface" && ! -e $root/sys/class/net/$interface ]]; then
    ip link set dev "$name" name "$interface" || return 1
    name=$interface
  fi
  [[ $name == "$interface" ]] ||
    printf "%s's interface is %s now: %s is another's\n" "$address" "$name" "$interface"
  [[ -z $mtu || $(read_value "/sys/class/net/$name/mtu") == "$mtu" ]] ||
    ip link set dev "$name" mtu "$mtu" || return 1
  [[ $up != up ]] || ip link set dev "$name" up
}
