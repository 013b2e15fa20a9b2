# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Hugepages of 2 MB: reserves what is missing, mounts a hugetlbfs if there is none, and puts both
# back when the script leaves.

hugepage_folder=/sys/kernel/mm/hugepages/hugepages-2048kB

hugepages_read() { cat "$hugepage_folder/$1" 2>/dev/null || echo 0; }

hugepages_restore() {
  echo "$1" >"$hugepage_folder/nr_hugepages" 2>/dev/null || true
}

# reserve_hugepages COUNT: at least COUNT of them are free from here on.
reserve_hugepages() {
  local want=$1 total free
  [[ -d $hugepage_folder ]] || die "this kernel has no hugepages of 2 MB ($hugepage_folder)." \
    "gradwire keeps every buffer in them, so it cannot run here."
  total=$(hugepages_read nr_hugepages)
  free=$(hugepages_read free_hugepages)
  if ((free >= want)); then
    step "hugepages: $free of $total are free, $want wanted"
    return
  fi
  step "hugepages: reserving $((want - free)) more ($free of $total are free, $want wanted)"
  on_exit hugepages_restore "$total"
  hugepages_restore $((total + want - free))
  if (($(hugepages_read free_hugepages) < want)); then
    # Memory is free but fragmented: drop the page cache, compact memory, and try again.
    sync
    echo 3 2>/dev/null >/proc/sys/vm/drop_caches || true
    echo 1 2>/dev/null >/proc/sys/vm/compact_memory || true
    hugepages_restore $((total + want - free))
  fi
  free=$(hugepages_read free_hugepages)
  ((free >= want)) || die "the kernel gives $free free hugepages of 2 MB, and $want are needed." \
    "Free memory now: $(awk '/MemAvailable/ {print int($2 / 1024)}' /proc/meminfo) MB;" \
    "needed: $((want * 2)) MB in pieces of 2 MB. Close programs, or reserve them at boot with" \
    "hugepages=$want on the kernel's command line."
}

# mount_hugetlbfs: EAL processes find their pages through a mounted hugetlbfs.
mount_hugetlbfs() {
  local target
  target=$(awk '$3 == "hugetlbfs" && ($4 !~ /pagesize=/ || $4 ~ /pagesize=2M/) {print $2; exit}' \
    /proc/mounts)
  if [[ -n $target ]]; then
    step "hugetlbfs: mounted on $target"
    return
  fi
  step "hugetlbfs: mounting on /dev/hugepages until this script ends"
  local made=0
  [[ -d /dev/hugepages ]] || { mkdir -p /dev/hugepages && made=1; }
  mount -t hugetlbfs -o pagesize=2M none /dev/hugepages ||
    die "cannot mount a hugetlbfs on /dev/hugepages." \
      "In a container, start it with --privileged or mount the host's /dev/hugepages."
  ((made)) && on_exit rmdir /dev/hugepages
  on_exit umount /dev/hugepages
}

# The most that the tests and the demo use, with two stories at once: 3 GiB.
# shellcheck disable=SC2034
test_hugepages=1536
# Suites that start no daemon map a page or two at a time.
# shellcheck disable=SC2034
unit_hugepages=64
