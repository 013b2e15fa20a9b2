# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Boots a virtual machine, one at a time, and has it run a story of test/vm/guest.

# QEMU's emulated CPU by default: it is to be had wherever QEMU is. $vm_accel may be kvm.
vm_accel=${GRADWIRE_VM_ACCEL:-tcg}
# Behind whatever else the machine does.
vm_nice=${GRADWIRE_VM_NICE:-15}
# On a busy machine everything takes that many times longer.
vm_patience=${GRADWIRE_VM_PATIENCE:-1}

# A physical-like machine: PCIe, an IOMMU with interrupt remapping that a guest's vfio can use.
vm_base_arguments() {
  local cpu=max
  # A nested KVM refuses the register that says which bugs the CPU does not have.
  [[ $vm_accel != kvm ]] || cpu=max,arch-capabilities=off
  printf '%s\n' -nodefaults -no-user-config -display none -no-reboot \
    -machine q35,kernel-irqchip=split -accel "$vm_accel" -cpu "$cpu" \
    -device intel-iommu,intremap=on,caching-mode=on,device-iotlb=on \
    -kernel "$vm_folder/kernel/vmlinuz" -initrd "$vm_folder/initramfs"
}

# Two NICs of a kind on one hub, as on one switch: vm_nic_arguments e1000e|virtio HUB.
vm_nic_arguments() {
  local kind=$1 hub=$2 end device
  for end in 1 2; do
    case $kind in
      e1000e) device=e1000e ;;
      virtio) device=virtio-net-pci,iommu_platform=on,disable-legacy=on,ats=on ;;
    esac
    printf '%s\n' -netdev "hubport,id=$kind$end,hubid=$hub" \
      -device "$device,netdev=$kind$end,mac=52:54:00:00:0$hub:0$end,addr=0x1$((hub * 2 + end))"
  done
}

# vm_boot STORY SECONDS KERNEL_ARGUMENTS QEMU_ARGUMENT...: what the story prints is in
# $vm_folder/STORY.out, what the kernel and init print in STORY.console. Fails where the story does.
vm_boot() {
  local story=$1 seconds=$2 append=$3 pid status=0 out=$vm_folder/$1.out arguments
  shift 3
  mapfile -t arguments < <(vm_base_arguments)
  : >"$out"
  step "virtual machine: $story ($vm_accel)"
  nice -n "$vm_nice" timeout -k 10 $((seconds * vm_patience)) \
    qemu-system-x86_64 "${arguments[@]}" "$@" \
    -serial "file:$vm_folder/$story.console" -serial "file:$out" \
    -append "console=ttyS0 panic=-1 no_timer_check quiet loglevel=4 intel_iommu=on iommu=pt \
gradwire.story=$story $append" >"$vm_folder/$story.qemu" 2>&1 </dev/null &
  pid=$!
  on_exit end_process "$pid"
  wait "$pid" || status=$?
  tr -d '\r' <"$out" >"$out.text"
  mv "$out.text" "$out"
  if ! grep -qx 'story: done' "$out"; then
    tail -n 40 "$out"
    printf -- '--- end of the console\n'
    tail -n 15 "$vm_folder/$story.console"
    cat "$vm_folder/$story.qemu"
    ((status != 124)) || printf 'it was ended after %s s\n' $((seconds * vm_patience))
    return 1
  fi
  sed 's/^/       /' "$out"
}
