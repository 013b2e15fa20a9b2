# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# One of two machines: an e1000e NIC on the wire to the other one's, and a virtio NIC beside it that
# the kernel keeps, over which the ranks meet. The kernel's TCP goes first, then RDMA by SoftRoCE,
# then vfio and a daemon, then --undo.
. /opt/gradwire/vm/story.sh

nic=0000:00:11.0 beside=0000:00:12.0
rank=$(sed -n 's/.*gradwire\.rank=\([01]\).*/\1/p' /proc/cmdline)
bench_ranks=("$rank")
sizes=(--sizes 64:60,4K:30,64K:10,1M:3 -w 2)

# reaches ADDRESS: the other machine may boot later.
reaches() {
  local tries=200
  while ((tries-- > 0)); do
    ping -c 1 -W 2 "$1" >"$work/ping" 2>&1 && return 0
    sleep 1
  done
  return 1
}
up() { ip link set "$1" mtu "$3" up && ip addr add "$2" dev "$1"; }

[[ $(driver_of $nic) == e1000e && $(driver_of $beside) == virtio-pci ]] || fail "not these NICs"
up "$(interface_of $beside)" "10.8.0.$((rank + 1))/24" 1500 || fail "the NIC beside"
up "$(interface_of $nic)" "10.9.0.$((rank + 1))/24" 9000 || fail "$nic does not take MTU 9000"
reaches "10.8.0.$((2 - rank))" || fail "the other machine is not there: $(cat "$work/ping")"
reaches "10.9.0.$((2 - rank))" || fail "no ping over $nic: $(cat "$work/ping")"
say "machine $rank: ping over both NICs"

bench_meet=tcp://10.8.0.1:18500
bench_rank() {
  printf '%s\n' gradwire-perf --transport tcp --tcp-address "10.9.0.$(($1 + 1))" --tcp-wait sleep
}
say "kernel TCP, MTU 9000"
bench tcp "${sizes[@]}"

modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "$(interface_of $nic)" ||
  fail "no SoftRoCE over $nic"
bench_meet=tcp://10.8.0.1:18501
bench_rank() {
  printf '%s\n' gradwire-perf --transport rdma --rdma-address "10.9.0.$(($1 + 1))" \
    --rdma-wait sleep
}
say "RDMA by SoftRoCE: $(rdma link show)"
bench rdma "${sizes[@]}"
counts=$(cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep -v '^0$' -- *_* | tr '\n' ' ')
say "SoftRoCE counts: $counts"
[[ $counts =~ sent_pkts:([0-9]+) ]] && ((BASH_REMATCH[1] > 1000)) ||
  fail "that is not what carried the ops"
# Three ranks, two of them on machine 1, IPv6, sizes that nothing divides.
ip addr add "fd09::$((rank + 1))/64" dev "$(interface_of $nic)" nodad
bench_meet=tcp://10.8.0.1:18502 bench_nranks=3 bench_ranks=(0)
((rank == 0)) || bench_ranks=(1 2)
bench_rank() {
  printf '%s\n' gradwire-perf --transport rdma --rdma-address "fd09::$(($1 > 0 ? 2 : 1))" \
    --rdma-wait sleep --rdma-chunk 4096 --rdma-lag 3 --rdma-exchange 32768
}
say "three ranks"
bench rdma-three --sizes 4,68,4096,65540,262148 -n 3 -w 1
# A rank that is killed amid its ops.
bench_meet=tcp://10.8.0.1:18503
gradwire-perf --transport rdma --rdma-address "10.9.0.$((rank + 1))" --rdma-wait sleep \
  --rank "$rank" --nranks 2 --rendezvous $bench_meet --timeout 60 --sizes 1M:100000 \
  >"$work/gone.out" 2>&1 </dev/null &
bench=$!
if ((rank)); then
  for ((tries = 0; tries < 200; tries++)); do
    ! grep -q 'is SoftRoCE' "$work/gone.out" || break
    sleep 0.2
  done
  sleep 2
  kill -0 $bench || fail "it has ended by itself"
  kill -KILL $bench
  wait $bench 2>/dev/null
else
  wait $bench && fail "it goes on without rank 1"
  grep 'rank 1 has ended\|rank 1 does not acknowledge' "$work/gone.out" >"$work/gone.why" ||
    fail "it does not say that rank 1 is gone"
  say "rank 1 killed: $(cat "$work/gone.why")"
fi
bench_nranks=2 bench_ranks=("$rank")
rdma link delete rxe0 || fail "SoftRoCE stays over $nic"

"$setup_host" --hugepages 320 --memlock unlimited --bind $nic >"$work/refused.out" 2>&1 &&
  fail "setup-host.sh took a NIC that has routes"
grep -q '10.9.0.0/24 is reached through it' "$work/refused.out" || fail "another reason"
ip addr flush dev "$(interface_of $nic)"
ip link set "$(interface_of $nic)" down mtu 1500
"$setup_host" --hugepages 320 --memlock unlimited --bind $nic >"$work/setup.out" 2>&1 ||
  fail "setup-host.sh: $(cat "$work/setup.out")"
[[ $(driver_of $nic) == vfio-pci ]] || fail "$nic is not vfio-pci's"
ulimit -l unlimited
gradwire doctor --nic $nic >"$work/doctor" || fail "doctor: $(cat "$work/doctor")"
say "doctor: $(tail -n 1 "$work/doctor")"
daemon gradwire 0@0,1@1 $nic "10.9.1.$((rank + 1))" adaptive
daemon_ready gradwire
bench_meet=tcp://10.8.0.1:18504
bench_rank() { printf '%s\n' gradwire-perf --socket "$work/gradwire.sock"; }
say "gradwire by vfio"
bench gradwire "${sizes[@]}"
daemons_end
"$setup_host" --undo >"$work/undo.out" 2>&1 || fail "--undo: $(cat "$work/undo.out")"
[[ $(driver_of $nic) == e1000e ]] || fail "--undo leaves $nic with $(driver_of $nic)"
say "--undo: e1000e has $nic again"

table "two machines, all-reduce of two ranks, rank $rank" e1000e \
  "$work/tcp.$rank.json" "$work/rdma.$rank.json" "$work/gradwire.$rank.json"
echo 'story: done'
