#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# setup-host.sh on a host made of files: what it does, what it shows and does not do, what it
# refuses, and that --undo leaves every byte as it was.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
. "$here/fake_host.sh"
setup_host=$here/../../../scripts/setup-host.sh
folder=$(mktemp -d "${TMPDIR:-/tmp}/gradwire-setup-host-XXXXXX")
trap 'rm -rf "$folder"' EXIT
tree=$folder/tree commands=$folder/commands calls=$folder/calls output=$folder/output
mkdir "$tree"
touch "$calls"
fake_host
fake_commands
export PATH=$commands:$PATH
unset SSH_CONNECTION
cases=0

fail() {
  printf 'FAILED: %s\n--- output:\n' "$*"
  cat "$output"
  exit 1
}
# Every file's name, kind, mode, link and text.
snapshot() {
  (cd "$tree" && find . -printf '%p %y %m %l\n' | sort && find . -type f -print0 | sort -z |
    xargs -0 sha256sum) >"$folder/$1"
}
unchanged() {
  snapshot now
  diff "$folder/$1" "$folder/now" >>"$output" || fail "the tree is not as $1: $2"
}
# call WHAT STATUS ARGUMENT...
call() {
  local what=$1 want=$2 status=0
  shift 2
  : >"$calls"
  "$setup_host" --root "$tree" "$@" >"$output" 2>&1 </dev/null || status=$?
  ((status == want)) || fail "$what: exit status $status, not $want"
  cases=$((cases + 1))
}
shows() { grep -qF -- "$1" "$output" || fail "the output lacks: $1"; }
holds() { [[ $(cat "$tree$1") == "$2" ]] || fail "$1 holds '$(cat "$tree$1")', not '$2'"; }
driver_is() {
  [[ $(basename "$(readlink "$tree/sys/bus/pci/devices/$1/driver")") == "$2" ]] ||
    fail "$1 has driver $(readlink "$tree/sys/bus/pci/devices/$1/driver"), not $2"
}
snapshot begin

# refused WHAT TEXT ARGUMENT...: status 1, the reason, and nothing has changed.
refused() {
  local what=$1 text=$2
  shift 2
  call "$what" 1 "$@"
  shows "$text"
  unchanged begin "$what"
}
refused "the default route's NIC, by way of a bond's VLAN" "carries the default route" --bind eth0
refused "the same by its address" "carries the default route" --bind 01:00.0
SSH_CONNECTION='192.0.2.99 51000 192.0.2.7 22' \
  refused "the caller's own" "carries the SSH connection" --bind eth3
# sudo takes it from the environment: an ancestor still has it.
call_as_sudo() {
  SSH_CONNECTION='192.0.2.99 51000 192.0.2.7 22' bash -c '"$@"; exit $?' ancestor \
    env -u SSH_CONNECTION "$setup_host" --root "$tree" --bind eth3
}
: >"$output"
! call_as_sudo >"$output" 2>&1 </dev/null || fail "the caller's own, by way of sudo"
shows "carries the SSH connection"
unchanged begin "the caller's own, by way of sudo"
refused "a bifurcated driver" "must stay with mlx5_core" --bind 0000:5e:00.0
refused "one with routes" "10.6.0.0/24 is reached through it" --bind eth6
refused "no NIC" "is not a network device" --bind 0000:00:02.0
refused "no such device" "there is no device 'eth9'" --bind eth9
refused "a node that is not there" "no NUMA node 2" --hugepages 2:100
refused "no number of pages" "must be a number of hugepages" --hugepages 0:x
refused "the boot CPU" "CPU 0 boots the kernel" --isolate 0-3
refused "a CPU that is not there" "there is no CPU 8" --isolate 8
refused "a list that runs backwards" "must be a list of CPUs" --isolate 4-2
refused "boot arguments now" "take effect at boot only" --isolate 3 --now
refused "too many functions" "8 virtual functions at most" --vfs eth2=9
refused "functions of a NIC without" "has no virtual functions" --vfs eth1=2
refused "two kinds of flow control" "exclude each other" --nic eth4 --pfc 3 --pause on
refused "a DSCP that is none" "must be DSCP=PRIORITY" --nic eth4 --dscp 64=3
refused "a NIC without priority flow control" "has no priority flow control" --nic eth1 --pfc 3
call "an option without value" 2 --bind
call "an option that is none" 2 --bnd eth1
call "settings without NIC" 2 --pfc 3
call "nothing asked" 2 --now

all=(--hugepages 0:1024,1:512 --hugepages-1g 4 --memlock unlimited --iommu --isolate 3,7
  --vfs eth2=4 --bind eth1 --nic eth4 --mtu 9000 --pfc 3 --dscp 26=3)
call "one thread of a core" 0 --dry-run --isolate 3
shows "CPU 7 is the other thread of CPU 3"
call "the dry run" 0 --dry-run "${all[@]}"
unchanged begin "a dry run changes nothing"
! grep -qE '^(modprobe [^-]|dpdk-devbind|mount|umount|update-grub|dcb (pfc set|app add))' \
  "$calls" || fail "a dry run ran: $(cat "$calls")"
cp "$output" "$folder/dry-run"
call "the real run" 0 "${all[@]}"
# Step for step what the dry run said, but for its own word.
diff <(grep '^would ' "$folder/dry-run" | sed 's/^would //' | grep -v hugepages-1048576kB) \
  <(grep -E '^(write|make|link|run:) ?' "$output" | grep -v hugepages-1048576kB) >>"$output" ||
  fail "the dry run shows other steps than the real run"

holds /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages 1024
holds /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages 512
holds /sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages 4
grep -q ' /dev/hugepages hugetlbfs rw,pagesize=2M ' "$tree/proc/mounts" || fail "2 MB not mounted"
grep -q ' /dev/hugepages1G hugetlbfs rw,pagesize=1024M ' "$tree/proc/mounts" ||
  fail "1 GB not mounted"
grep -q '^w /sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages - - - - 512' \
  "$tree/etc/tmpfiles.d/gradwire-hugepages.conf" || fail "no pages at the next boot"
grep -q '^@gradwire - memlock unlimited' "$tree/etc/security/limits.d/90-gradwire.conf" ||
  fail "no memlock"
! grep -q "is the other thread" "$output" || fail "3 and 7 are one core"
for argument in isolcpus=managed_irq,domain,3,7 nohz_full=3,7 rcu_nocbs=3,7 \
  irqaffinity=0,1,2,4,5,6 intel_iommu=on iommu=pt hugepagesz=1G hugepages=0:4,1:4; do
  grep -qF "$argument" "$tree.grub.cfg" || fail "GRUB does not have $argument"
done
shows "reboot for the boot arguments"
holds /sys/bus/pci/devices/0000:3b:00.1/sriov_numvfs 4
driver_is 0000:3b:00.0 vfio-pci
grep -qF 'KERNEL=="0000:3b:00.0", ATTR{driver_override}="vfio-pci"' \
  "$tree/etc/udev/rules.d/60-gradwire.rules" || fail "not bound at the next boot"
grep -qx 'vfio-pci' "$tree/etc/modules-load.d/gradwire.conf" || fail "vfio-pci not loaded at boot"
holds /sys/class/net/eth4/mtu 9000
[[ $(cat "$tree.pause.eth4") == 'off off' ]] || fail "pause is on beside priority flow control"
grep -q '3:on' "$tree.dcb.pfc" || fail "no priority flow control"
grep -qx 26:3 "$tree.dcb.app" || fail "DSCP 26 has no priority"

call "the same again" 0 "${all[@]}"
shows "nothing to do"
cp -a "$tree/etc" "$folder/etc"
call "more of it, for now" 0 --hugepages 0:2048 --vfs eth2=2 --now
holds /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages 2048
holds /sys/bus/pci/devices/0000:3b:00.1/sriov_numvfs 2
diff -r --no-dereference "$folder/etc" "$tree/etc" >>"$output" ||
  fail "--now changed what outlasts a reboot"
call "another boot argument" 0 --isolate 2,6
grep -qF 'intel_iommu=on' "$tree.grub.cfg" || fail "an earlier call's argument is gone"
grep -qF 'isolcpus=managed_irq,domain,2,6' "$tree.grub.cfg" || fail "the new argument is missing"
! grep -qF 'domain,3,7' "$tree.grub.cfg" || fail "the old isolation is still there"
call "given back by itself" 0 --unbind 0000:3b:00.0
driver_is 0000:3b:00.0 ice
call "and taken again" 0 --bind eth1
driver_is 0000:3b:00.0 vfio-pci

snapshot before-undo
call "what undoing would do" 0 --undo --dry-run
shows "would run: dpdk-devbind.py --bind=ice 0000:3b:00.0"
unchanged before-undo "a dry run of --undo changes nothing"
call "undo" 0 --undo
unchanged begin "all is undone"
[[ $(cat "$tree.pause.eth4") == 'on on' ]] || fail "pause is not back"
! grep -q ':on' "$tree.dcb.pfc" || fail "priority flow control is not back"
[[ ! -s $tree.dcb.app ]] || fail "the priority of DSCP 26 is not gone"
! grep -q 'isolcpus' "$tree.grub.cfg" || fail "GRUB still has the arguments"
call "undo when there is nothing" 0 --undo
shows "nothing to undo"
unchanged begin "undo when there is nothing"

# Without udev the interface comes back under another name.
call "bound where udev names nothing" 0 --bind eth1
echo eth0x >"$tree.first_free_name"
call "undo where udev names nothing" 0 --undo
grep -q '^ip link set dev eth0x name eth1$' "$calls" || fail "the interface is not eth1 again"
rm "$tree.first_free_name"
unchanged begin "the interface has its name again"

# Several at once.
call "bound together" 0 --bind eth1,0000:3b:00.1
driver_is 0000:3b:00.0 vfio-pci
driver_is 0000:3b:00.1 vfio-pci
(($(grep -c '^dpdk-devbind.py' "$calls") == 1)) || fail "more calls than one"
call "undo of both" 0 --undo
unchanged begin "both are back"

# A machine without IOMMU.
mv "$tree/sys/kernel/iommu_groups" "$folder/iommu_groups"
snapshot no-iommu
call "bound where there is no IOMMU" 1 --bind eth1
shows "the IOMMU is off"
unchanged no-iommu "refused where there is no IOMMU"
call "bound all the same" 0 --bind eth1 --no-iommu
holds /sys/module/vfio/parameters/enable_unsafe_noiommu_mode Y
driver_is 0000:3b:00.0 vfio-pci
call "undo without IOMMU" 0 --undo
unchanged no-iommu "all is undone without IOMMU"
mv "$folder/iommu_groups" "$tree/sys/kernel/iommu_groups"

# Cut short in the middle: what was done before is in the record.
mv "$commands/dpdk-devbind.py" "$folder/devbind"
fake_command dpdk-devbind.py <<<'exit 1'
call "a step that fails" 1 --hugepages 64 --memlock 1024 --bind eth1
shows "dpdk-devbind.py failed"
grep -q '^root - memlock 1048576$' "$tree/etc/security/limits.d/90-gradwire.conf" ||
  fail "1024 MiB are 1048576 KiB"
mv "$folder/devbind" "$commands/dpdk-devbind.py"
call "undo of what was cut short" 0 --undo
unchanged begin "all is undone after a step that failed"

# A file of somebody else's in the way is put back, not removed.
fake_file /etc/modules-load.d/gradwire.conf 'nf_tables'
snapshot begin
call "a file that was there" 0 --bind eth1
call "undo of a file that was there" 0 --undo
unchanged begin "the file that was there is back"
# Without --root, as on a host: here with a record of its own.
bash -euo pipefail -c '
  for part in lib/log host/actions host/record; do . "$1/$part.sh"; done
  root= dry_run=0 boot_file=none record_folder=$2/made/record
  record value "$2/value" before
  echo after >"$2/value"
  record_undo' undo "$here/../../../scripts" "$folder" >"$output" 2>&1 || fail "undo without --root"
shows "all undone"
[[ $(cat "$folder/value") == before && ! -e $folder/made ]] || fail "not all undone without --root"

printf '%d calls of setup-host.sh\n' "$cases"
