# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Boots virtual machines and has them run stories of test/vm/guest.

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

vm_virtio_device() { printf 'virtio-net-pci,iommu_platform=on,disable-legacy=on,ats=on'; }

# Two NICs of a kind on one hub, as on one switch: vm_nic_arguments e1000e|virtio HUB. Their links
# are KIND-HUB-1 and KIND-HUB-2 to QEMU's monitor.
vm_nic_arguments() {
  local kind=$1 hub=$2 end device link
  for end in 1 2; do
    case $kind in
      e1000e) device=e1000e ;;
      virtio) device=$(vm_virtio_device) ;;
    esac
    link=$kind-$hub-$end
    printf '%s\n' -netdev "hubport,id=$link,hubid=$hub" \
      -device "$device,netdev=$link,mac=52:54:00:00:0$hub:0$end,addr=0x1$((hub * 2 + end))"
  done
}

# vm_monitor_arguments SOCKET: the machine's third serial port leads to its own monitor, by which a
# story sets links down: set_link.sh.
vm_monitor_arguments() {
  printf '%s\n' -chardev "socket,id=serial,path=$1,server=on,wait=off" \
    -device isa-serial,chardev=serial,index=2 \
    -chardev "socket,id=monitor,path=$1" -mon chardev=monitor,mode=control
}

# vm_start NAME STORY SECONDS KERNEL_ARGUMENTS QEMU_ARGUMENT...: boots a machine that runs a story.
# What it prints is in $vm_folder/NAME.out, what the kernel and init print in NAME.console.
declare -A vm_pids=()
vm_start() {
  local name=$1 story=$2 seconds=$3 append=$4 out=$vm_folder/$1.out arguments
  shift 4
  mapfile -t arguments < <(vm_base_arguments)
  : >"$out"
  step "virtual machine: $name ($vm_accel)"
  nice -n "$vm_nice" timeout -k 10 $((seconds * vm_patience)) \
    qemu-system-x86_64 "${arguments[@]}" "$@" \
    -serial "file:$vm_folder/$name.console" -serial "file:$out" \
    -append "console=ttyS0 panic=-1 no_timer_check quiet loglevel=4 intel_iommu=on iommu=pt \
gradwire.story=$story $append" >"$vm_folder/$name.qemu" 2>&1 </dev/null &
  vm_pids[$name]=$!
  on_exit end_process $!
}

# vm_wait NAME: until the machine is off. Fails where its story did.
vm_wait() {
  local name=$1 status=0 out=$vm_folder/$1.out
  wait "${vm_pids[$name]}" || status=$?
  tr -d '\r' <"$out" >"$out.text"
  mv "$out.text" "$out"
  if ! grep -qx 'story: done' "$out"; then
    tail -n 40 "$out"
    printf -- '--- end of the console of %s\n' "$name"
    tail -n 15 "$vm_folder/$name.console"
    cat "$vm_folder/$name.qemu"
    ((status != 124)) || printf 'it was ended after its time\n'
    return 1
  fi
  sed 's/^/       /' "$out"
}

# vm_boot STORY SECONDS KERNEL_ARGUMENTS QEMU_ARGUMENT...: one machine, to its end.
vm_boot() {
  vm_start "$1" "$@"
  vm_wait "$1"
}

# vm_boot_pair SECONDS: two machines, with an e1000e and a virtio NIC each, and another virtio NIC
# beside them; the links between are sockets of this host.
vm_boot_pair() {
  local rank side status=0 tries=100
  run_dir_make
  for rank in 0 1; do
    side=server=on
    if ((rank)); then
      # A socket can only be connected to once it is there.
      while [[ ! -S $run_dir/virtio ]] && ((tries-- > 0)); do sleep 0.1; done
      side=server=off
    fi
    vm_start "pair$rank" pair "$1" "gradwire.rank=$rank" -m 2304 -smp 2 \
      -netdev "stream,id=wire,$side,addr.type=unix,addr.path=$run_dir/wire" \
      -device "e1000e,netdev=wire,mac=52:54:00:00:01:0$rank,addr=0x11" \
      -netdev "stream,id=beside,$side,addr.type=unix,addr.path=$run_dir/beside" \
      -device "$(vm_virtio_device),netdev=beside,mac=52:54:00:00:02:0$rank,addr=0x12" \
      -netdev "stream,id=virtio,$side,addr.type=unix,addr.path=$run_dir/virtio" \
      -device "$(vm_virtio_device),netdev=virtio,mac=52:54:00:00:03:0$rank,addr=0x13"
  done
  for rank in 0 1; do vm_wait "pair$rank" || status=1; done
  return $status
}
