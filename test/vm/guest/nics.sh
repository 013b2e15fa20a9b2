# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Two e1000e NICs on one hub, and two virtio ones on another. The kernel's TCP goes first, over the
# kernel's drivers, each NIC in a namespace of its own; then setup-host.sh gives them to vfio, and
# two daemons reduce over them; then --undo, and everything is as it was.
. /opt/gradwire/vm/story.sh

e1000e=(0000:00:11.0 0000:00:12.0)
virtio=(0000:00:13.0 0000:00:14.0)
all=("${e1000e[@]}" "${virtio[@]}")
sizes=(--sizes 64:60,4K:30,64K:10,1M:3 -w 2)

state() {
  local address
  for address in "${all[@]}"; do
    echo "$address $(driver_of "$address") $(interface_of "$address")" \
      "$(cat "/sys/class/net/$(interface_of "$address")/mtu" 2>/dev/null)"
  done
  cat /sys/kernel/mm/hugepages/*/nr_hugepages /proc/cmdline
  grep hugetlbfs /proc/mounts
  (cd /etc && find . -type f -exec sha256sum {} + | sort)
  find /etc /var/lib | sort
}

say "kernel $(uname -r), $(nproc) CPUs, $(grep -c . /proc/swaps) line of swaps"
for address in "${all[@]}"; do
  say "$address: $(driver_of "$address"), interface $(interface_of "$address")"
done
[[ $(driver_of "${e1000e[0]}") == e1000e ]] || fail "the kernel has not taken the e1000e NICs"
[[ $(driver_of "${virtio[0]}") == virtio-pci ]] || fail "the kernel has not taken the virtio NICs"
[[ -e /sys/kernel/iommu_groups/0 ]] || fail "the guest has no IOMMU"
state >"$work/before"

nics=$(printf -- '--nic %s ' "${all[@]}")
gradwire doctor $nics >"$work/doctor-before" && fail "doctor: fit before anything was set up"
grep -q '^fail  hugepages: none on any node' "$work/doctor-before" || fail "doctor: hugepages"
grep -q "^fail  nic driver, ${e1000e[0]} (.*): e1000e: in use by the kernel" \
  "$work/doctor-before" ||
  fail "doctor: the driver"
grep -q '^ok    IOMMU: on' "$work/doctor-before" || fail "doctor: the IOMMU"
grep -q '^warn  vfio: not loaded' "$work/doctor-before" || fail "doctor: vfio"
say "doctor before: $(tail -n 1 "$work/doctor-before")"

# The kernel's TCP over the kernel's drivers.
tcp_over() {
  local kind=$1 rank name
  shift
  for rank in 0 1; do
    name=$(interface_of "$1")
    ip netns add "$kind$rank"
    ip link set "$name" netns "$kind$rank"
    ip -n "$kind$rank" link set lo up
    ip -n "$kind$rank" link set "$name" mtu 9000 up || fail "$name does not take MTU 9000"
    ip -n "$kind$rank" addr add "10.9.0.$((rank + 1))/24" dev "$name"
    shift
  done
  sleep 3
  ip netns exec "${kind}0" ping -c 3 -i 0.3 -W 5 10.9.0.2 >"$work/ping" || fail "no ping over $kind"
  bench_rank() {
    printf '%s\n' ip netns exec "$kind$1" gradwire-perf --transport tcp \
      --tcp-address "10.9.0.$(($1 + 1))" --tcp-wait sleep
  }
  say "kernel TCP over $kind, MTU 9000"
  bench "tcp-$kind" "${sizes[@]}"
  ip netns exec "${kind}0" gradwire doctor --peer 10.9.0.2 >"$work/path"
  grep -q '^ok    path MTU, 10.9.0.2: 9000 of 9000' "$work/path" ||
    fail "doctor does not find the path's MTU: $(cat "$work/path")"
  say "doctor --peer: $(grep 'path MTU' "$work/path")"
  for rank in 0 1; do
    # Back in the host's namespace, as it was.
    name=$(ip -n "$kind$rank" -o link show up | awk -F': ' '$2 != "lo" {print $2}')
    ip -n "$kind$rank" addr flush dev "$name"
    ip -n "$kind$rank" link set "$name" down mtu 1500
    ip -n "$kind$rank" link set "$name" netns 1
    ip netns del "$kind$rank"
  done
}
tcp_over e1000e "${e1000e[@]}"
tcp_over virtio "${virtio[@]}"

list=$(IFS=, && echo "${all[*]}")
"$setup_host" --hugepages 640 --memlock unlimited --bind "$list" >"$work/setup.out" 2>&1 ||
  fail "setup-host.sh: $(cat "$work/setup.out")"
sed 's/^/    /' "$work/setup.out"
for address in "${all[@]}"; do
  [[ $(driver_of "$address") == vfio-pci ]] || fail "$address is not vfio-pci's"
done
ulimit -l unlimited
gradwire doctor $nics >"$work/doctor-after" || fail "doctor: $(cat "$work/doctor-after")"
grep -q "^ok    nic driver, ${e1000e[0]}: vfio-pci, IOMMU group" "$work/doctor-after" ||
  fail "doctor: the driver after"
say "doctor after: $(tail -n 1 "$work/doctor-after")"

gradwire_over() {
  local kind=$1
  shift
  daemon "$kind-0" 0@0,1@1 "$1" 10.9.1.1 adaptive
  daemon "$kind-1" 0@2,1@3 "$2" 10.9.1.2 adaptive
  daemon_ready "$kind-0"
  daemon_ready "$kind-1"
  grep -ohE '(mempool|lane 0:) .*' "$work/$kind-0.log" | sed 's/^/    /'
  bench_rank() { printf '%s\n' gradwire-perf --socket "$work/$kind-$1.sock"; }
  say "gradwire over $kind by vfio"
  bench "gradwire-$kind" "${sizes[@]}"
  daemons_end
}
gradwire_over e1000e "${e1000e[@]}"
gradwire_over virtio "${virtio[@]}"

"$setup_host" --undo >"$work/undo.out" 2>&1 || fail "--undo: $(cat "$work/undo.out")"
sleep 2
state >"$work/after"
diff "$work/before" "$work/after" || fail "--undo leaves another state than there was"
say "--undo: drivers, interfaces, hugepages, mounts and /etc are as they were"

table "one machine, all-reduce of two ranks" \
  e1000e "$work/tcp-e1000e.0.json" "$work/gradwire-e1000e.0.json" \
  virtio "$work/tcp-virtio.0.json" "$work/gradwire-virtio.0.json"
echo 'story: done'
