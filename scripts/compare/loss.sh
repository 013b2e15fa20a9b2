#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What loss costs: two ranks all-reduce through daemons over memif, and with the bench's own lanes,
# while their ports lose frames on purpose; beside them a ring over the kernel's TCP on a veth,
# whose ends lose as many packets by a BPF program.
. "$(dirname "$0")/../lib/setup.sh"

usage() {
  cat <<TEXT
scripts/compare/loss.sh [--rounds N] [--size BYTES] [--losses "0 0.001 0.01"] [--out FILE] ...

Everything runs in turns, \`rounds\` times over; a loss costs what the mean time of an op is longer
than without loss in the same round. Needs root, hugepages and a build; takes about four minutes.

  --rounds N      default 5
  --size BYTES    of an op, default 16M
  --losses LIST   shares of packets, the first is what others are compared with
  --rows LIST     of daemon embedded tcp tcp-offload; default all
  --ops N         timed ops of a run, default 60; TCP does a third of it
  --out FILE      the report, as Markdown; default: on the terminal alone
  --build DIR     build folder, default build
  --help          this text
TEXT
}

rounds=5
size=16M
losses="0 0.001 0.01"
rows="daemon embedded tcp tcp-offload"
ops=60
out=
build=$repo_root/build
while (($# > 0)); do
  case $1 in
    --rounds) rounds=${2:-} && shift ;;
    --size) size=${2:-} && shift ;;
    --losses) losses=${2:-} && shift ;;
    --rows) rows=${2:-} && shift ;;
    --ops) ops=${2:-} && shift ;;
    --out) out=${2:-} && shift ;;
    --build) build=${2:-} && shift ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  (($# > 0)) && shift
done

need_root
build=$(cd "$build" && pwd)
gradwired=$build/app/gradwired/gradwired
gradwire_perf=$build/app/gradwire-perf/gradwire-perf
gradwire_cli=$build/app/gradwire/gradwire
[[ -x $gradwired && -x $gradwire_perf && -x $gradwire_cli ]] ||
  die "$build has no gradwired, gradwire-perf and gradwire: build first."
. "$repo_root/scripts/lib/daemons.sh"
run_dir_make
mkdir "$run_dir/runs"
limit_s=100
started=()
end_started() {
  local pid
  for pid in "${started[@]}"; do end_process "$pid"; done
  started=()
}
on_exit end_started

# perf RANK NAME COMMAND...: in the background. finish: waits for both.
perf() {
  local rank=$1 name=$2
  shift 2
  timeout -k 5 "$limit_s" "$@" --rank "$rank" --nranks 2 --rendezvous "$run_dir/meet" --warmup 3 \
    --no-check --timeout 60 --json "$run_dir/runs/$name-$rank.json" \
    >"$run_dir/perf-$rank.out" 2>&1 </dev/null &
  started+=($!)
}
finish() {
  local pid status=0
  for pid in "${started[@]}"; do wait "$pid" || status=$?; done
  started=()
  ((status == 0)) || { tail -n 3 "$run_dir"/perf-[01].out && die "a rank failed."; }
}

daemons_up=0
row_daemon() {
  local i
  if ((!daemons_up)); then
    memif_ring_start 2 || die "the daemons do not start."
    daemons_up=1
  fi
  for i in 0 1; do
    local faults=(--clear)
    [[ $1 == 0 ]] || faults=(--drop "$1" --seed "$((RANDOM + i))")
    "$gradwire_cli" inject --socket "$(daemon_socket $i)" "${faults[@]}" >/dev/null
    perf $i "$2" "$gradwire_perf" --socket "$(daemon_socket $i)" --sizes "$size:$ops"
  done
  finish
}

row_embedded() {
  local i role tries link="socket=$run_dir/pair.sock,socket-abstract=no,bsize=9216,rsize=7"
  for i in 0 1; do
    role=server
    ((i == 0)) || role=client
    perf $i "$2" "$gradwire_perf" --lcores "0@($(allowed_cpus))" --no-pci --no-telemetry \
      --log-level=error -m 64 --file-prefix "gwl$$-$i" --vdev "net_memif0,role=$role,$link" \
      -- --transport gradwire --port "net_memif0=10.9.0.$((i + 1))/24" --payload 8192 \
      --drop "$1" --fault-seed "$((RANDOM + i))" --sizes "$size:$ops"
    for ((tries = 0; i == 0 && tries < 400; tries++)); do
      [[ ! -S $run_dir/pair.sock ]] || break
      sleep 0.05
    done
  done
  finish
  rm -f "$run_dir/pair.sock"
}

namespaces=("gwl$$a" "gwl$$b")
namespaces_up() {
  local i loss
  local clang
  clang=$(clang_name) # compiles the BPF program
  for i in 0 1; do
    ip netns add "${namespaces[i]}" || die "this kernel or container has no network namespaces."
    on_exit ip netns del "${namespaces[i]}"
  done
  ip -n "${namespaces[0]}" link add gwl0 type veth peer name gwl1 netns "${namespaces[1]}"
  for i in 0 1; do
    ip -n "${namespaces[i]}" link set gwl$i mtu 9000 up
    ip -n "${namespaces[i]}" link set lo up
    ip -n "${namespaces[i]}" addr add "10.79.3.$((i + 1))/24" dev gwl$i
    tc -n "${namespaces[i]}" qdisc add dev gwl$i clsact
  done
  for loss in $losses; do
    "$clang" -O2 -target bpf -I"/usr/include/$(uname -m)-linux-gnu" \
      -DDROP="$(awk -v p="$loss" 'BEGIN {printf "%.0fu", p * 4294967296}')" \
      -c "$repo_root/scripts/compare/loss.bpf.c" -o "$run_dir/loss-$loss.o"
  done
}
run_tcp() {
  local i offload=$3
  [[ -e $run_dir/loss-$1.o ]] || namespaces_up
  for i in 0 1; do
    ip netns exec "${namespaces[i]}" ethtool -K gwl$i tso "$offload" gso "$offload" \
      gro "$offload" >/dev/null
    tc -n "${namespaces[i]}" filter del dev gwl$i ingress 2>/dev/null || true
    tc -n "${namespaces[i]}" filter add dev gwl$i ingress bpf da obj "$run_dir/loss-$1.o" sec loss
  done
  for i in 0 1; do
    perf $i "$2" ip netns exec "${namespaces[i]}" "$gradwire_perf" --transport tcp \
      --tcp-address "10.79.3.$((i + 1))" --tcp-wait sleep --sizes "$size:$((ops / 3))"
  done
  finish
}
row_tcp() { run_tcp "$1" "$2" off; }
row_tcp-offload() { run_tcp "$1" "$2" on; }

for ((round = 0; round < rounds; round++)); do
  for row in $rows; do
    for loss in $losses; do
      rm -rf "$run_dir/meet" && mkdir "$run_dir/meet"
      begin=$SECONDS
      "row_$row" "$loss" "$row-$loss-$round"
      note "round $((round + 1)) of $rounds, $row, loss $loss: $((SECONDS - begin)) s"
    done
  done
done
commit=$(git -C "$repo_root" rev-parse --short HEAD 2>/dev/null || printf 'unknown')
report=("$python" "$repo_root/scripts/compare/loss_report.py" "$run_dir/runs" --rows "$rows"
  --losses "$losses" --rounds "$rounds" --commit "$commit"
  --command "scripts/compare/loss.sh --rounds $rounds --size $size --ops $ops")
if [[ -n $out ]]; then
  "${report[@]}" | tee "$out"
else
  "${report[@]}"
fi
