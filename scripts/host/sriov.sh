# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Virtual functions of an SR-IOV NIC: the kernel keeps the physical function, DPDK takes the others.

sriov_rules=/etc/udev/rules.d/61-gradwire-sriov.rules
declare -A sriov_wanted=()  # by address: functions

sriov_check() {
  local request device count address total
  for request in "${vf_requests[@]}"; do
    device=${request%=*} count=${request##*=}
    [[ $request == *=* && $count =~ ^[0-9]+$ ]] ||
      die "--vfs $request must be DEVICE=COUNT, such as eth1=4."
    address=$(pci_resolve "$device")
    [[ -e $root$pci_devices/$address/sriov_numvfs ]] ||
      die "$address has no virtual functions: SR-IOV is off in its firmware or the BIOS, or its" \
        "driver ($(pci_driver "$address")) has none."
    total=$(read_value "$pci_devices/$address/sriov_totalvfs")
    ((count <= total)) || die "$address has $total virtual functions at most, not $count."
    sriov_wanted[$address]=$count
  done
}

sriov_apply() {
  local address path now rules=
  ((${#sriov_wanted[@]} > 0)) || return 0
  for address in $(printf '%s\n' "${!sriov_wanted[@]}" | sort); do
    path=$pci_devices/$address/sriov_numvfs
    # From one number to another the kernel goes by way of none.
    now=$(read_value "$path")
    if [[ $now != 0 && $now != "${sriov_wanted[$address]}" ]]; then
      set_value "$path" 0 "the number of functions changes by way of none"
    fi
    set_value "$path" "${sriov_wanted[$address]}" "virtual functions of $address"
    rules+="ACTION==\"add\", SUBSYSTEM==\"net\", KERNELS==\"$address\",\
 ATTR{device/sriov_numvfs}=\"${sriov_wanted[$address]}\"
"
  done
  ((now_only)) && return 0
  make_file "$sriov_rules" "the same functions at each boot" <<TEXT
# Made by gradwire's setup-host.sh; --undo removes it.
${rules%?}
TEXT
}
