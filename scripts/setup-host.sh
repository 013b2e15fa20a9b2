#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes a host fit for gradwired: hugepages, vfio, NICs, virtual functions, boot arguments. Records
# the state before each change, and --undo restores it. doc/operations.md says when to use what.
set -euo pipefail
host_folder=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# At the end of PATH, which often lacks sbin without a login shell.
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C
. "$host_folder/lib/log.sh"
for host_part in actions record pci routes hugepages memlock bind sriov boot nic; do
  # shellcheck source=/dev/null
  . "$host_folder/host/$host_part.sh"
done

usage() {
  cat <<TEXT
scripts/setup-host.sh OPTION...

Does what the options ask for, in this order, and records the previous state. Leaves alone what is
already as it should be. Run it as root.

  --hugepages LIST     pages of 2 MB: COUNT on each NUMA node, or NODE:COUNT,NODE:COUNT
  --hugepages-1g LIST  pages of 1 GB, likewise; after boot few are available, so the kernel's
                       command line asks for them too
  --memlock LIMIT      memory that members of the group gradwire may lock: MiB, or unlimited
  --iommu              boot arguments that turn the IOMMU on, in pass-through mode for the kernel
  --isolate CPUS       boot arguments that keep everything else off these CPUs: 3,4 or 2-5
  --vfs DEVICE=COUNT   create virtual functions of an SR-IOV NIC; once for each NIC
  --bind DEVICES       give NICs to DPDK: PCI addresses or interfaces, separated by commas
  --driver NAME        driver for --bind; default vfio-pci
  --no-iommu           --bind on a machine without IOMMU: vfio without memory protection
  --unbind DEVICES     give NICs back to their kernel driver
  --nic DEVICE         the NIC for the four options below, which keeps its kernel driver
    --mtu BYTES        set its MTU
    --pause on|off     set link-level flow control, in both directions
    --pfc PRIORITIES   set priority flow control for exactly these priorities
    --dscp DSCP=PRIO   give packets with this DSCP this priority
  --now                change nothing that outlasts a reboot
  --undo               restore everything that was recorded, the last change first
  --dry-run            show each step but do nothing
  --root DIR           work on the tree below DIR instead of /, for tests
  --help               this text

Exit status: 0 done, 1 refused or failed, 2 wrong usage. The record is
/var/lib/gradwire/setup-host/record.
TEXT
}

usage_error() {
  printf 'error: %s\n       scripts/setup-host.sh --help lists all options.\n' "$1" >&2
  exit 2
}

root=
dry_run=0
now_only=0
undo=0
hugepages_2m='' hugepages_1g='' memlock='' isolate='' iommu=0 no_iommu=0
bind_driver=vfio-pci
bind_devices=() unbind_devices=() vf_requests=()
nic='' nic_mtu='' nic_pause='' nic_pfc='' nic_dscp=()
asked=0

(($# > 0)) || { usage >&2 && exit 2; }
while (($# > 0)); do
  case $1 in
    --now) now_only=1 && shift && continue ;;
    --undo) undo=1 asked=1 && shift && continue ;;
    --dry-run) dry_run=1 && shift && continue ;;
    --iommu) iommu=1 asked=1 && shift && continue ;;
    --no-iommu) no_iommu=1 && shift && continue ;;
    --help) usage && exit 0 ;;
    --*) ;;
    *) usage_error "'$1' is not an option." ;;
  esac
  (($# > 1)) || usage_error "'$1' is not an option, or its value is missing."
  case $1 in
    --hugepages) hugepages_2m=$2 asked=1 ;;
    --hugepages-1g) hugepages_1g=$2 asked=1 ;;
    --memlock) memlock=$2 asked=1 ;;
    --isolate) isolate=$2 asked=1 ;;
    --vfs) vf_requests+=("$2") asked=1 ;;
    --bind) IFS=, read -ra items <<<"$2" && bind_devices+=("${items[@]}") && asked=1 ;;
    --unbind) IFS=, read -ra items <<<"$2" && unbind_devices+=("${items[@]}") && asked=1 ;;
    --driver) bind_driver=$2 ;;
    --nic) nic=$2 asked=1 ;;
    --mtu) nic_mtu=$2 ;;
    --pause) nic_pause=$2 ;;
    --pfc) nic_pfc=$2 ;;
    --dscp) nic_dscp+=("$2") ;;
    --root) root=${2%/} ;;
    *) usage_error "'$1' is not an option." ;;
  esac
  shift 2
done
((asked)) || usage_error "give at least one option that changes something."
if [[ -z $nic && -n $nic_mtu$nic_pause$nic_pfc${nic_dscp[*]} ]]; then
  usage_error "--mtu, --pause, --pfc and --dscp need --nic DEVICE."
fi
if [[ -z $root ]] && ((EUID != 0 && !dry_run)); then
  die "this script must run as root, and you are $(id -un)." "Run it as: sudo $0 ..."
fi

if ((undo)); then
  record_undo
  exit 0
fi
# Everything that can be refused is refused before the first change.
hugepages_check
memlock_check
boot_check
sriov_check
bind_check
nic_check
hugepages_apply
memlock_apply
boot_apply
sriov_apply
bind_apply
unbind_apply
nic_apply
actions_summary
