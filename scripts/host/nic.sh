# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Flow control, DSCP and MTU of a NIC that its kernel driver keeps: mlx5, or the physical function
# behind virtual ones. A NIC that vfio has takes these from its DPDK driver, and the settings of the
# kernel's are lost when it is bound. ECN needs nothing here: the switch marks, gradwire reacts.

nic_interface='' nic_pause_shown='' nic_pfc_shown=''

nic_check() {
  local address item driver
  [[ -n $nic ]] || return 0
  [[ -n $nic_mtu$nic_pause$nic_pfc${nic_dscp[*]} ]] ||
    usage_error "--nic $nic needs one of --mtu, --pause, --pfc, --dscp."
  if [[ -e $root/sys/class/net/$nic ]]; then
    nic_interface=$nic
  else
    address=$(pci_resolve "$nic")
    nic_interface=$(pci_interfaces "$address" | head -n 1)
    driver=$(pci_driver "$address")
    [[ -n $nic_interface ]] || die "$address has no interface: its driver is ${driver:-none}." \
      "Flow control is set while the kernel has it, or on its physical function."
  fi
  [[ -z $nic_mtu || $nic_mtu =~ ^[1-9][0-9]{2,4}$ ]] ||
    die "--mtu $nic_mtu: must be in bytes, as 9000."
  [[ $nic_pause =~ ^(on|off|)$ ]] || die "--pause $nic_pause must be on or off."
  [[ -z $nic_pfc || $nic_pfc =~ ^[0-7](,[0-7])*$ ]] ||
    die "--pfc $nic_pfc: priorities are 0 to 7, separated by commas."
  if [[ -n $nic_pfc && $nic_pause == on ]]; then
    die "--pfc and --pause on exclude each other: a link has one kind of flow control."
  fi
  for item in "${nic_dscp[@]}"; do
    [[ $item =~ ^([0-9]+)=([0-7])$ ]] && ((BASH_REMATCH[1] <= 63)) ||
      die "--dscp $item must be DSCP=PRIORITY, 0 to 63 and 0 to 7, such as 26=3."
  done
  [[ -z $nic_pause$nic_pfc ]] || need_command ethtool "--pause and --pfc" ethtool
  [[ -z $nic_pfc${nic_dscp[*]} ]] || need_command dcb "--pfc and --dscp" iproute2
  if [[ -n $nic_pause$nic_pfc ]]; then
    nic_pause_shown=$(ethtool -a "$nic_interface" 2>/dev/null) ||
      die "$nic_interface: its driver does not report flow control (ethtool -a)."
  fi
  if [[ -n $nic_pfc ]]; then
    # "prio-pfc 0:off 1:off ..."
    nic_pfc_shown=$(dcb pfc show dev "$nic_interface" prio-pfc 2>/dev/null) ||
      die "$nic_interface: its driver has no priority flow control (dcb pfc show)."
  fi
}

nic_apply() {
  local item old priority
  [[ -n $nic ]] || return 0
  if [[ -n $nic_mtu ]]; then
    old=$(read_value "/sys/class/net/$nic_interface/mtu")
    [[ $old == "$nic_mtu" ]] || run_recorded ip link set dev "$nic_interface" mtu "$old" -- \
      ip link set dev "$nic_interface" mtu "$nic_mtu"
  fi
  [[ -z $nic_pfc ]] || nic_pause=off
  [[ -z $nic_pause ]] || nic_set_pause
  [[ -z $nic_pfc ]] || nic_set_pfc
  for item in "${nic_dscp[@]}"; do
    old=${item%=*} priority=${item#*=}
    ! dcb app show dev "$nic_interface" dscp-prio 2>/dev/null |
      tr ' ' '\n' | grep -qx "$old:$priority" || continue
    run_recorded dcb app del dev "$nic_interface" dscp-prio "$old:$priority" -- \
      dcb app add dev "$nic_interface" dscp-prio "$old:$priority"
  done
}

nic_set_pause() {
  local rx tx
  rx=$(awk '/^RX:/ {print $2}' <<<"$nic_pause_shown")
  tx=$(awk '/^TX:/ {print $2}' <<<"$nic_pause_shown")
  [[ $rx != "$nic_pause" || $tx != "$nic_pause" ]] || return 0
  run_recorded ethtool -A "$nic_interface" rx "$rx" tx "$tx" -- \
    ethtool -A "$nic_interface" rx "$nic_pause" tx "$nic_pause"
}

nic_set_pfc() {
  local shown=" ${nic_pfc_shown//$'\n'/ } " priority word words=() old=()
  for priority in 0 1 2 3 4 5 6 7; do
    word=off
    [[ $shown != *" $priority:on "* ]] || word=on
    old+=("$priority:$word")
    word=off
    [[ ",$nic_pfc," != *",$priority,"* ]] || word=on
    words+=("$priority:$word")
  done
  [[ ${words[*]} != "${old[*]}" ]] || return 0
  run_recorded dcb pfc set dev "$nic_interface" prio-pfc "${old[@]}" -- \
    dcb pfc set dev "$nic_interface" prio-pfc "${words[@]}"
}
