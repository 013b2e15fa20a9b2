# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Arguments of the kernel's command line: isolation, the IOMMU, pages of 1 GB. They go into a file
# that GRUB reads beside its own, so that removing the file takes all of them back.

boot_file=/etc/default/grub.d/90-gradwire.cfg
boot_arguments=()

# cpu_list_expand LIST: one number a line; fails where it is no list.
cpu_list_expand() {
  local item items cpu
  [[ $1 =~ ^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$ ]] || return 1
  IFS=, read -ra items <<<"$1"
  for item in "${items[@]}"; do
    ((${item#*-} >= ${item%-*})) || return 1
    for ((cpu = ${item%-*}; cpu <= ${item#*-}; cpu++)); do printf '%s\n' "$cpu"; done
  done
}

boot_check() {
  local cpu online isolated node pages arguments
  if [[ -n $isolate ]]; then
    isolated=$(cpu_list_expand "$isolate") ||
      die "--isolate $isolate must be a list of CPUs, such as 3,4 or 2-5."
    online=$(cpu_list_expand "$(read_value /sys/devices/system/cpu/online)")
    for cpu in $isolated; do
      grep -qx "$cpu" <<<"$online" || die "--isolate $isolate: there is no CPU $cpu; there are" \
        "$(read_value /sys/devices/system/cpu/online)."
      boot_siblings "$cpu" "$isolated"
    done
    ! grep -qx 0 <<<"$isolated" ||
      die "--isolate $isolate: CPU 0 boots the kernel and keeps its time: leave it out."
    node=$(grep -vxF -f <(printf '%s\n' "$isolated") <<<"$online" | paste -sd,) || true
    [[ -n $node ]] || die "--isolate $isolate leaves the system no CPU."
    boot_arguments+=("isolcpus=managed_irq,domain,$isolate" "nohz_full=$isolate"
      "rcu_nocbs=$isolate" "irqaffinity=$node")
  fi
  if ((iommu)); then
    # AMD's is on where the firmware has it; Intel's waits to be asked.
    grep -q GenuineIntel "$root/proc/cpuinfo" && boot_arguments+=(intel_iommu=on)
    boot_arguments+=(iommu=pt)
  fi
  if [[ -n $hugepages_1g ]] && ((!now_only)); then
    arguments=
    for node in $(numa_nodes); do
      pages=${hugepages_wanted[1048576 $node]:-}
      [[ -z $pages ]] || arguments+=${arguments:+,}$node:$pages
    done
    # The default size is said again, since the first hugepagesz= would not set it.
    boot_arguments+=("hugepagesz=1G" "hugepages=$arguments")
  fi
  if ((now_only)) && ((${#boot_arguments[@]} > 0)); then
    die "--isolate and --iommu take effect at boot only, and --now forbids that."
  fi
}

# boot_siblings CPU ISOLATED: says where the other thread of its core is not isolated too.
boot_siblings() {
  local siblings sibling
  siblings=$(read_value "/sys/devices/system/cpu/cpu$1/topology/thread_siblings_list")
  for sibling in $(cpu_list_expand "$siblings" || true); do
    grep -qx "$sibling" <<<"$2" ||
      printf 'note: CPU %s is the other thread of CPU %s: %s\n' "$sibling" "$1" \
        "what runs there slows the lane; isolate it too and leave it idle"
  done
}

boot_apply() {
  local kept='' argument command_line missing=0
  ((${#boot_arguments[@]} > 0)) || return 0
  # What an earlier call asked for stays, unless this one says it anew.
  if [[ -r $root$boot_file ]]; then
    for argument in $(sed -n 's/^GRUB_CMDLINE_.*GRUB_CMDLINE_LINUX_DEFAULT \(.*\)"/\1/p' \
      "$root$boot_file"); do
      [[ " ${boot_arguments[*]}" == *" ${argument%%=*}="* ]] || kept+="$argument "
    done
  fi
  make_file "$boot_file" "boot arguments" <<TEXT
# Made by gradwire's setup-host.sh; --undo removes it.
GRUB_CMDLINE_LINUX_DEFAULT="\$GRUB_CMDLINE_LINUX_DEFAULT $kept${boot_arguments[*]}"
TEXT
  ((!file_made)) || boot_update_grub
  command_line=" $(read_value /proc/cmdline) "
  for argument in "${boot_arguments[@]}"; do
    [[ $command_line == *" $argument "* ]] || missing=1
  done
  ((!missing)) || actions_reboot=1
}

boot_update_grub() {
  if have update-grub; then
    run_plain "the next boot has the arguments of $boot_file" update-grub
  else
    printf 'no update-grub here: give the arguments in %s to the boot loader by hand\n' "$boot_file"
  fi
}
