# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Hugepages of 2 MB and 1 GB on each NUMA node, and where they are mounted; now, and at each boot.

# Pages of 1 GB go onto the kernel's command line (boot.sh): later there are no such pieces left.
hugepages_tmpfiles=/etc/tmpfiles.d/gradwire-hugepages.conf
hugepages_1g_folder=/dev/hugepages1G
hugepages_1g_unit=/etc/systemd/system/dev-hugepages1G.mount
declare -A hugepages_wanted=()  # by "KIB NODE": pages

numa_nodes() {
  local folder
  for folder in "$root"/sys/devices/system/node/node[0-9]*; do
    [[ -d $folder ]] && basename "$folder" | sed 's/^node//'
  done | sort -n
  return 0
}

hugepages_path() { printf '/sys/devices/system/node/node%s/hugepages/hugepages-%skB' "$2" "$1"; }

# hugepages_parse LIST KIB: fills hugepages_wanted.
hugepages_parse() {
  local list=$1 kib=$2 item node nodes items
  [[ -n $list ]] || return 0
  mapfile -t nodes < <(numa_nodes)
  ((${#nodes[@]} > 0)) || die "this kernel has no /sys/devices/system/node/node0."
  if [[ $list =~ ^[0-9]+$ ]]; then
    for node in "${nodes[@]}"; do hugepages_wanted[$kib $node]=$list; done
  else
    IFS=, read -ra items <<<"$list"
    for item in "${items[@]}"; do
      [[ $item =~ ^([0-9]+):([0-9]+)$ ]] ||
        die "'$item' must be a number of hugepages: COUNT, or NODE:COUNT,NODE:COUNT."
      node=${BASH_REMATCH[1]}
      [[ " ${nodes[*]} " == *" $node "* ]] ||
        die "there is no NUMA node $node; there are: ${nodes[*]}."
      hugepages_wanted[$kib $node]=${BASH_REMATCH[2]}
    done
  fi
  for node in "${nodes[@]}"; do
    [[ -z ${hugepages_wanted[$kib $node]:-} || -d $root$(hugepages_path "$kib" "$node") ]] ||
      die "this CPU or kernel supports no hugepages of $kib kB on node $node." \
        "Pages of 1 GB need the CPU's flag pdpe1gb."
  done
}

hugepages_check() {
  hugepages_parse "$hugepages_2m" 2048
  hugepages_parse "$hugepages_1g" 1048576
}

hugepages_apply() {
  local kib node key lines=
  ((${#hugepages_wanted[@]} > 0)) || return 0
  for kib in 2048 1048576; do
    for node in $(numa_nodes); do
      key="$kib $node"
      [[ -n ${hugepages_wanted[$key]:-} ]] || continue
      hugepages_reserve "$kib" "$node" "${hugepages_wanted[$key]}"
      [[ $kib != 2048 ]] ||
        lines+="w $(hugepages_path "$kib" "$node")/nr_hugepages - - - - ${hugepages_wanted[$key]}
"
    done
  done
  if [[ -n $lines ]]; then
    hugepages_mount /dev/hugepages 2M
    if ((!now_only)); then
      make_file "$hugepages_tmpfiles" "the same pages at each boot" <<TEXT
# Made by gradwire's setup-host.sh; --undo removes it.
${lines%?}
TEXT
    fi
  fi
  if [[ -n $hugepages_1g ]]; then
    hugepages_mount "$hugepages_1g_folder" 1G
    ((now_only)) || hugepages_1g_mount_at_boot
  fi
}

hugepages_1g_mount_at_boot() {
  make_file "$hugepages_1g_unit" "mounted at each boot" <<TEXT
# Made by gradwire's setup-host.sh; --undo removes it.
[Unit]
Description=Hugepages of 1 GB
DefaultDependencies=no
Before=sysinit.target

[Mount]
What=hugetlbfs
Where=$hugepages_1g_folder
Type=hugetlbfs
Options=pagesize=1G
TEXT
  make_link "/etc/systemd/system/sysinit.target.wants/$(basename "$hugepages_1g_unit")" \
    "$hugepages_1g_unit" "systemd mounts it"
  actions_reload=1
}

# hugepages_reserve KIB NODE COUNT: now. Memory may be in pieces, so it is asked for twice.
hugepages_reserve() {
  local kib=$1 node=$2 want=$3 path now
  path=$(hugepages_path "$kib" "$node")/nr_hugepages
  set_value "$path" "$want" "hugepages of $((kib / 1024)) MB on node $node"
  ((dry_run)) && return 0
  now=$(read_value "$path")
  if ((now < want)); then
    [[ -n $root ]] || sync
    write_value /proc/sys/vm/drop_caches 3 || true
    write_value /proc/sys/vm/compact_memory 1 || true
    write_value "$path" "$want" || true
    now=$(read_value "$path")
  fi
  ((now >= want)) && return 0
  if [[ $kib == 1048576 ]] && ((!now_only)); then
    printf 'node %s has %s of %s pages of 1 GB now; the rest comes with the next boot\n' \
      "$node" "$now" "$want"
    return 0
  fi
  die "node $node gives $now of $want hugepages of $((kib / 1024)) MB." \
    "Its free memory in MB: $(awk '/MemFree/ {print int($4 / 1024)}' \
      "$root/sys/devices/system/node/node$node/meminfo" 2>/dev/null || printf 'unknown')." \
    "Close programs, ask for fewer, or reboot: at boot memory is in one piece."
}

mount_is_there() { awk -v at="$1" '$2 == at {found = 1} END {exit !found}' "$root/proc/mounts"; }

# hugepages_mount FOLDER SIZE: unless a hugetlbfs of that page size is mounted somewhere.
hugepages_mount() {
  local folder=$1 size=$2 at bytes=2M default
  default=$(awk '/^Hugepagesize:/ {print $2}' "$root/proc/meminfo" 2>/dev/null) || default=2048
  [[ $default != 1048576 ]] || bytes=1024M
  [[ $size != 1G ]] || size=1024M
  # The kernel writes 2M and 1024M, and leaves the option out where the default size is meant.
  at=$(awk -v size="$size" -v default="$bytes" '
    $3 == "hugetlbfs" {
      has = default
      if (match($4, /pagesize=[0-9]+[MG]/)) has = substr($4, RSTART + 9, RLENGTH - 9)
      if (has == "1G") has = "1024M"
      if (has == size) {print $2; exit}
    }' "$root/proc/mounts")
  [[ -z $at ]] || return 0
  ((dry_run)) || make_folder "$folder"
  say "run: mount -t hugetlbfs -o pagesize=$size none $folder"
  ((dry_run)) && return 0
  record mount "$folder"
  mount -t hugetlbfs -o "pagesize=$size" none "$root$folder" || die "mounting $folder failed."
}
