#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# gradwire on NICs that are as good as physical ones: QEMU boots the distribution's kernel on an
# emulated machine with an IOMMU, setup-host.sh gives e1000e and virtio NICs to vfio, and daemons
# reduce over them.
. "$(dirname "$0")/lib/setup.sh"
. "$repo_root/scripts/lib/last_run.sh"
. "$repo_root/scripts/vm/image.sh"
. "$repo_root/scripts/vm/machine.sh"

usage() {
  cat <<TEXT
scripts/vm-test.sh [--stories LIST] [--build FOLDER] [--cache FOLDER] [--save FILE]

Boots virtual machines that run the stories of test/vm/guest:
  nics    two e1000e and two virtio NICs: doctor before and after, kernel TCP and gradwire on the
          same NICs, --undo
  pair    two machines with an e1000e and a virtio NIC each: kernel TCP, RDMA by SoftRoCE and
          gradwire between them over IPv4 and IPv6, p50 and CPU time
  failover  two daemons with two e1000e NICs each: QEMU sets a link down and up again amid ops
  numa    two NUMA nodes and isolated cores: where lanes run, where their pages are, how often they
          are preempted, compared with a run on shared cores
  package the Debian package under systemd: started, watched, upgraded, removed; needs --packages

  --stories LIST   comma-separated; default nics,pair,failover,numa
  --build FOLDER   build folder to test; default build
  --cache FOLDER   where to keep the root and the kernel, which are made once; default FOLDER/vm of
                   the build
  --packages FOLDER  revisions 1 and 2 of gradwire's Debian package (scripts/build-deb.sh)
  --save FILE      write the tables to FILE
  --no-setup       do not install packages
  --help           this text

Exit status: 0 passed, 77 skipped (QEMU, debootstrap or packages are not available). The CPU is
emulated (GRADWIRE_VM_ACCEL=kvm uses /dev/kvm instead), so figures compare only with each other.
TEXT
}

stories=nics,pair,failover,numa
vm_build=$repo_root/build vm_folder='' save='' setup=1 vm_packages_folder=''
while (($# > 0)); do
  case $1 in
    --stories) stories=${2:?--stories needs a value} && shift ;;
    --build) vm_build=$(realpath "${2:?--build needs a value}") && shift ;;
    --cache) vm_folder=${2:?--cache needs a value} && shift ;;
    --packages) vm_packages_folder=$(realpath "${2:?--packages needs a value}") && shift ;;
    --save) save=${2:?--save needs a value} && shift ;;
    --no-setup) setup=0 ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  shift
done

vm_cannot() {
  printf 'skipped: %s\n' "$*"
  exit 77
}

((EUID == 0)) || vm_cannot "making a root for the guest needs root"
if ((setup)); then
  need_debian
  install_packages vm
fi
for program in qemu-system-x86_64 debootstrap cpio depmod strip; do
  command -v "$program" >/dev/null || vm_cannot "there is no $program here"
done
for program in "${vm_programs[@]}"; do
  [[ -x $vm_build/app/$program/$program ]] ||
    die "there is no $vm_build/app/$program/$program: build first (scripts/test.sh)."
done
(($(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo) >= 5000)) ||
  vm_cannot "a virtual machine takes 4 GB of memory, and less is available"
vm_folder=${vm_folder:-$vm_build/vm}
mkdir -p "$vm_folder"
vm_folder=$(realpath "$vm_folder")
exec 9>"$vm_folder/lock"
flock -n 9 || die "another vm-test.sh runs in $vm_folder."

vm_root
step "initramfs"
vm_initramfs "$vm_folder/initramfs"

failed=0
started=$SECONDS
for story in ${stories//,/ }; do
  [[ -e $repo_root/test/vm/guest/$story.sh ]] || die "there is no story '$story' in test/vm/guest."
  mapfile -t nics < <(vm_nic_arguments e1000e 0 && vm_nic_arguments virtio 1)
  case $story in
    numa)
      # The NICs' bus is on node 1, whose CPUs are isolated.
      vm_boot numa 700 "isolcpus=managed_irq,domain,2,3 nohz_full=2,3 rcu_nocbs=2,3" \
        -m 4096 -smp 4,sockets=2,cores=2 \
        -object memory-backend-ram,id=m0,size=2G -object memory-backend-ram,id=m1,size=2G \
        -numa node,nodeid=0,cpus=0-1,memdev=m0 -numa node,nodeid=1,cpus=2-3,memdev=m1 \
        -device pxb-pcie,id=pxb1,bus_nr=128,bus=pcie.0,numa_node=1,addr=0x10 \
        -device pcie-root-port,id=rp1,bus=pxb1,chassis=1,slot=1 \
        -device pcie-root-port,id=rp2,bus=pxb1,chassis=2,slot=2 \
        -netdev hubport,id=n1,hubid=0 -device e1000e,netdev=n1,bus=rp1,mac=52:54:00:00:00:01 \
        -netdev hubport,id=n2,hubid=0 -device e1000e,netdev=n2,bus=rp2,mac=52:54:00:00:00:02 ||
        failed=1
      ;;
    pair) vm_boot_pair 700 || failed=1 ;;
    failover)
      run_dir_make
      mapfile -t nics < <(vm_nic_arguments e1000e 0 && vm_nic_arguments e1000e 1 &&
        vm_monitor_arguments "$run_dir/monitor")
      vm_boot failover 700 "" -m 4096 -smp 4 "${nics[@]}" || failed=1
      ;;
    package)
      vm_boot package 700 "gradwire.init=/sbin/init systemd.unit=gradwire-story.service" \
        -m 4096 -smp 2 "${nics[@]}" || failed=1
      ;;
    *) vm_boot "$story" 700 "" -m 4096 -smp 4 "${nics[@]}" || failed=1 ;;
  esac
done
step "stories: $((SECONDS - started)) s in virtual machines"
if [[ -n $save ]]; then
  for story in ${stories//,/ }; do
    [[ $story != pair ]] || story=pair0
    sed -n 's/^| /| /p; s/^table: /\n/p' "$vm_folder/$story.out"
  done >"$save"
fi
((!failed)) || die "a story failed; consoles and outputs are in $vm_folder."
[[ $stories != nics,pair,failover,numa ]] || last_run_write vm "$stories, $vm_accel"
