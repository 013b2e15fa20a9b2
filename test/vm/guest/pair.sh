# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# One of two machines: an e1000e and a virtio NIC, each on a wire to the other machine's, and a
# virtio NIC beside them that the kernel keeps, over which the ranks meet. The kernel's TCP goes
# first, then RDMA by SoftRoCE, then vfio and a daemon for each NIC, over IPv4 and IPv6, then
# --undo.
. /opt/gradwire/vm/story.sh

kinds=(e1000e virtio)
declare -A nic=([e1000e]=0000:00:11.0 [virtio]=0000:00:13.0) net=([e1000e]=1 [virtio]=2)
beside=0000:00:12.0
rank=$(sed -n 's/.*gradwire\.rank=\([01]\).*/\1/p' /proc/cmdline)
bench_ranks=("$rank")
# So many ops that the CPU time, which is known in steps of 10 ms, is a matter of seconds.
sizes=(--sizes 64:1000,4K:600,64K:150,1M:20 -w 2)
# The kernel's addresses are 10.9.NET.RANK+1; those of the daemons 10.9.NET+10.RANK+1.
address() { printf '10.9.%s.%s' "${net[$1]}" $(($2 + 1)); }

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
# meet: the next bench's ranks meet at a port of its own.
meeting=18500
meet() { bench_meet=tcp://10.8.0.1:$((meeting++)); }

[[ $(driver_of $beside) == virtio-pci && $(driver_of "${nic[e1000e]}") == e1000e &&
  $(driver_of "${nic[virtio]}") == virtio-pci ]] || fail "not these NICs"
up "$(interface_of $beside)" "10.8.0.$((rank + 1))/24" 1500 || fail "the NIC beside"
reaches "10.8.0.$((2 - rank))" || fail "the other machine is not there: $(cat "$work/ping")"
for kind in "${kinds[@]}"; do
  up "$(interface_of "${nic[$kind]}")" "$(address "$kind" "$rank")/24" 9000 ||
    fail "${nic[$kind]} does not take MTU 9000"
  reaches "$(address "$kind" $((1 - rank)))" || fail "no ping over $kind: $(cat "$work/ping")"
done
say "machine $rank: ping over all NICs"

for kind in "${kinds[@]}"; do
  bench_rank() {
    printf '%s\n' gradwire-perf --transport tcp --tcp-address "$(address "$kind" "$1")" \
      --tcp-wait sleep
  }
  say "kernel TCP over $kind, MTU 9000"
  meet
  bench "tcp-$kind" "${sizes[@]}"
done

# rdma_traced NAME OPTION...: as bench, while bpftrace follows the ring step by step.
rdma_traced() {
  local tracer tries
  mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null
  bpftrace /opt/gradwire/scripts/bpf/rdma-steps.bt "$bin/gradwire-perf" >"$work/steps" 2>&1 &
  tracer=$!
  for ((tries = 0; tries < 600; tries++)); do
    ! grep -q Attaching "$work/steps" || break
    kill -0 $tracer 2>/dev/null || break
    sleep 0.1
  done
  grep -q 'Attaching 4 probes' "$work/steps" || fail "bpftrace: $(cat "$work/steps")"
  # It says so before the last probe is attached.
  sleep 2
  bench "$@"
  # An interrupt that comes while it attaches is lost.
  for ((tries = 0; tries < 60; tries++)); do
    kill -INT $tracer 2>/dev/null || break
    sleep 0.5
  done
  wait $tracer
  for step in hop_us'\[1, 2, ' completed_us'\[1, ' completed_us'\[2, ' kept_us'\[2\]'; do
    grep -q "^@$step" "$work/steps" || fail "bpftrace shows no $step: $(cat "$work/steps")"
  done
  ! grep '^@hop_us\[[^1]' "$work/steps" || fail "hops of a rank that is not on this machine"
  say "bpftrace, rdma-steps.bt:"
  sed 's/^/    /' "$work/steps"
}

# compared: the row rdma of compare.sh between two hosts, which are both this machine: "ssh" runs
# the command here. Two addresses of one SoftRoCE device.
compared() {
  printf '#!/bin/bash\nwhile [[ $1 == -o ]]; do shift 2; done\nshift\nexec bash -c "$*"\n' \
    >"$work/ssh"
  chmod +x "$work/ssh"
  ip addr add 10.9.1.12/24 dev "$(interface_of "${nic[e1000e]}")"
  GRADWIRE_SSH=$work/ssh /opt/gradwire/scripts/compare.sh --no-setup --build /opt/gradwire/build \
    --quick --reps 1 --sizes 64,64K --hosts h0,h1 --ports 0000:00:11.0,0000:00:11.0 \
    --addresses 10.9.1.2,10.9.1.12 --rows rdma --out "$work/compared" >"$work/compare.out" 2>&1 ||
    fail "compare.sh: $(cat "$work/compare.out")"
  grep -q 'no element was wrong' "$work/compared/compare-hosts.md" &&
    grep -qE '^\| +64 KB \| +[0-9.,]+ (us|ms) ' "$work/compared/compare-hosts.md" ||
    fail "compare.sh has no row rdma: $(cat "$work/compared/compare-hosts.md")"
  say "compare.sh --hosts --rows rdma: $(grep -m 1 '64 KB' "$work/compared/compare-hosts.md")"
  ip addr del 10.9.1.12/24 dev "$(interface_of "${nic[e1000e]}")"
}

# The part of the story with RDMA, by SoftRoCE.
with_rdma() {
  local kind counts tries bench device=0
  for kind in "${kinds[@]}"; do
    modprobe rdma_rxe &&
      rdma link add "rxe$device" type rxe netdev "$(interface_of "${nic[$kind]}")" ||
      fail "no SoftRoCE over $kind"
    bench_rank() {
      printf '%s\n' gradwire-perf --transport rdma --rdma-address "$(address "$kind" "$1")" \
        --rdma-wait sleep
    }
    say "RDMA by SoftRoCE over $kind: $(rdma link show "rxe$device/1")"
    meet
    bench "rdma-$kind" "${sizes[@]}"
    counts=$(cd "/sys/class/infiniband/rxe$device/ports/1/hw_counters" && grep -v '^0$' -- *_* |
      tr '\n' ' ')
    say "SoftRoCE counts: $counts"
    [[ $counts =~ sent_pkts:([0-9]+) ]] && ((BASH_REMATCH[1] > 1000)) ||
      fail "that is not what carried the ops"
    ((device++))
  done
  # Three ranks, two of them on machine 1, IPv6, sizes that nothing divides.
  ip addr add "fd09::$((rank + 1))/64" dev "$(interface_of "${nic[e1000e]}")" nodad
  bench_nranks=3 bench_ranks=(0)
  ((rank == 0)) || bench_ranks=(1 2)
  bench_rank() {
    printf '%s\n' gradwire-perf --transport rdma --rdma-address "fd09::$(($1 > 0 ? 2 : 1))" \
      --rdma-wait sleep --rdma-chunk 4096 --rdma-lag 3 --rdma-exchange 32768
  }
  say "three ranks"
  meet
  if ((rank)) && grep -qa rdma_posted "$bin/gradwire-perf"; then
    rdma_traced rdma-three --sizes 4,68,4096,65540,262148 -n 3 -w 1
  else
    ((!rank)) || say "skipped: bpftrace: gradwire-perf was built without static probes"
    bench rdma-three --sizes 4,68,4096,65540,262148 -n 3 -w 1
  fi
  bench_nranks=2 bench_ranks=("$rank")
  # A rank that is killed amid its ops.
  meet
  gradwire-perf --transport rdma --rdma-address "$(address e1000e "$rank")" --rdma-wait sleep \
    --rank "$rank" --nranks 2 --rendezvous "$bench_meet" --timeout 60 --sizes 1M:100000 \
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
  ((!rank)) || compared
  for device in 0 1; do rdma link delete "rxe$device" || fail "SoftRoCE stays: rxe$device"; done
}
transports=(tcp rdma gradwire)
if grep -qa 'was built without libibverbs' "$bin/gradwire-perf"; then
  transports=(tcp gradwire)
  say "skipped: RDMA by SoftRoCE: gradwire-perf was built without libibverbs"
else
  with_rdma
fi

list=$(IFS=, && echo "${nic[*]}")
"$setup_host" --hugepages 320 --memlock unlimited --bind "$list" >"$work/refused.out" 2>&1 &&
  fail "setup-host.sh took a NIC that has routes"
grep -q '10.9.1.0/24 is reached through it' "$work/refused.out" || fail "another reason"
for kind in "${kinds[@]}"; do
  ip addr flush dev "$(interface_of "${nic[$kind]}")"
  ip link set "$(interface_of "${nic[$kind]}")" down mtu 1500
done
"$setup_host" --hugepages 320 --memlock unlimited --bind "$list" >"$work/setup.out" 2>&1 ||
  fail "setup-host.sh: $(cat "$work/setup.out")"
for kind in "${kinds[@]}"; do
  [[ $(driver_of "${nic[$kind]}") == vfio-pci ]] || fail "${nic[$kind]} is not vfio-pci's"
done
ulimit -l unlimited
gradwire doctor --nic "${nic[e1000e]}" --nic "${nic[virtio]}" >"$work/doctor" ||
  fail "doctor: $(cat "$work/doctor")"
say "doctor: $(tail -n 1 "$work/doctor")"

# gradwire_over KIND NAME IP OPTION...: a daemon of its own, whose only port has this address.
gradwire_over() {
  local kind=$1 name=$2 ip=$3
  shift 3
  daemon "$name" 0@0,1@1 "${nic[$kind]}" "$ip" adaptive
  daemon_ready "$name"
  bench_rank() { printf '%s\n' gradwire-perf --socket "$work/$name.sock"; }
  say "gradwire over $kind by vfio, $ip"
  meet
  bench "$name" "$@"
  daemons_end
}
for kind in "${kinds[@]}"; do
  gradwire_over "$kind" "gradwire-$kind" "10.9.$((net[$kind] + 10)).$((rank + 1))" "${sizes[@]}"
  gradwire_over "$kind" "ipv6-$kind" "fd09:${net[$kind]}::$((rank + 1))" \
    --sizes 4:20,68:20,4096:20,65540:10,1M:3,4194308:2 -w 1
done
"$setup_host" --undo >"$work/undo.out" 2>&1 || fail "--undo: $(cat "$work/undo.out")"
[[ $(driver_of "${nic[e1000e]}") == e1000e && $(driver_of "${nic[virtio]}") == virtio-pci ]] ||
  fail "--undo leaves the NICs with $(driver_of "${nic[e1000e]}"), $(driver_of "${nic[virtio]}")"
say "--undo: e1000e and virtio have their NICs again"

columns=()
for kind in "${kinds[@]}"; do
  columns+=("$kind")
  for transport in "${transports[@]}"; do columns+=("$work/$transport-$kind.$rank.json"); done
done
table "two machines, all-reduce of two ranks, rank $rank" "${columns[@]}"
echo 'story: done'
