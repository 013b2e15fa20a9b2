#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Trains a model whose steps are mostly communication, its gradients summed by gradwire daemons on
# this machine, then the same with Gloo, and compares.
. "$(dirname "$0")/lib/setup.sh"

usage() {
  cat <<TEXT
scripts/demo.sh [--backend] [--shaped GBIT] [--formats LIST] [--model wide|transformer] [--ranks N]
                [--members M] [--steps S]

Trains a model that predicts the next character, on the licence texts of this machine, twice from
the same seed: once with N gradwire daemons, joined by memif links, summing the gradients, once with
Gloo. Prints for both the loss, the time per step, the characters trained per second and the time in
all-reduce, and whether the final weights agree; plots loss and time. First installs packages,
reserves hugepages and builds; at the end stops and restores everything it started or changed. Run
it as root.

  --backend     current PyTorch with the process group on gradwire, in place of Debian's with a
                hook: DDP, then FSDP2, each beside Gloo. Installs PyTorch with pip into the build
                folder, or \$GRADWIRE_TORCH_VENV: 5 GB. No plot
  --shaped GBIT two hosts joined by a link of that rate, 0.01 to 10 Gbit/s, in place of memif and
                loopback: two namespaces, and a token bucket at each end through which gradwire
                and Gloo's TCP both go. What a slow Ethernet does to a step
  --formats LIST
                bf16, int8, or bf16,int8: gradwire trains once more for each, with gradients that
                travel in that format and error feedback (doc/formats.md)
  --model NAME  wide (default): tables of n-grams, 34 MB of gradients per step, little computation;
                transformer: 3 MB of gradients per step, much computation
  --ranks N     number of daemons, 1 to 8; default 2. Two share a link, more form a ring of links
  --members M   training processes per daemon, 1 to 4; default 1
  --steps S     training steps, 5 to 10000; default 120, transformer 60
  --plot FILE   where to write the plot, a PNG; default demo.png in the build folder
  --build DIR   build folder; default build
  --no-setup    do not install packages or reserve hugepages
  --help        this text

With GRADWIRE_KEEP_LOGS=1 the folder with the daemons' logs is kept.
TEXT
}

# number NAME VALUE MIN MAX
number() {
  if ! [[ $2 =~ ^[1-9][0-9]{0,5}$ ]] || (($2 < $3 || $2 > $4)); then
    die "$1 is '$2', must be a number from $3 to $4."
  fi
}

ranks=2
members=1
steps=
model=wide
plot=
layouts=hook
shaped=
formats=
build=$repo_root/build
setup=1
while (($# > 0)); do
  case $1 in
    --model) model=${2:-} && shift ;;
    --backend) layouts='ddp fsdp' ;;
    --shaped) shaped=${2:-} && shift ;;
    --formats) formats=${2:-} && shift ;;
    --plot) plot=${2:-} && shift ;;
    --ranks) ranks=${2:-} && shift ;;
    --members) members=${2:-} && shift ;;
    --steps) steps=${2:-} && shift ;;
    --build) build=${2:-} && shift ;;
    --no-setup) setup=0 ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  (($# > 0)) && shift
done
number --ranks "$ranks" 1 8
number --members "$members" 1 4
. "$repo_root/scripts/lib/shaped_link.sh"
if [[ -n $shaped ]]; then
  shaped_gbit_check --shaped "$shaped"
  ((ranks == 2)) || die "--shaped is of two ranks: leave out --ranks."
fi
[[ $formats =~ ^(|(bf16|int8)(,(bf16|int8))?)$ ]] ||
  die "--formats is '$formats', must be bf16, int8, or both with a comma between."
[[ $formats != bf16,bf16 && $formats != int8,int8 ]] || die "--formats names $formats twice."
((ranks > 1)) || [[ -z $formats ]] ||
  die "--formats: with one daemon nothing travels: leave out --ranks."
[[ -z $formats || $layouts == hook ]] || die "--formats is of the hook: leave out --backend."
case $model in
  # 34 MB take 0.3 s at 1 Gbit/s.
  wide) batch=16 && steps=${steps:-$([[ -n $shaped ]] && echo 30 || echo 120)} ;;
  transformer) batch=8 && steps=${steps:-60} ;;
  *) die "--model is '$model', must be wide or transformer." ;;
esac
number --steps "$steps" 5 10000
plot=${plot:-$build/demo.png}
world=$((ranks * members))

# How far a weight may be from Gloo's. Both sum in fp32, but in another order, so the last bit of a
# sum may differ, and Adam, which divides by the gradient's size, enlarges the difference.
tolerance=1e-4

need_root
if ((setup)); then
  need_debian
  install_packages build run train plot
  fetch_dpdk_headers
  reserve_hugepages $((ranks * 128 + world * 32))
  mount_hugetlbfs
fi
build_targets=(gradwired gradwire:shared_library)
build_tree "$build" gcc --buildtype debugoptimized -Db_sanitize=none

gradwired=$build/app/gradwired/gradwired
export GRADWIRE_LIBRARY=$build/lib/client/libgradwire.so
export PYTHONPATH=$repo_root/python PYTHONDONTWRITEBYTECODE=1
. "$repo_root/scripts/lib/daemons.sh"
if [[ $layouts != hook ]]; then
  . "$repo_root/scripts/lib/torch_venv.sh"
  venv=${GRADWIRE_TORCH_VENV:-$build/torch-venv}
  torch_venv "$venv"
  python=$venv/bin/python
fi
run_dir_make

train_ns=()  # by daemon; empty: the host's

# train BACKEND LAYOUT [FORMAT]: one job of $world processes, as torchrun would start them.
train() {
  local backend=$1 layout=$2 format=${3:-} rank ended i status=0
  local -A pids=()
  export MASTER_ADDR=127.0.0.1 MASTER_PORT WORLD_SIZE=$world OMP_NUM_THREADS=1
  export GLOO_SOCKET_IFNAME=lo
  # Debian 13's torch 2.6 asks its store for libuv, which it was built without.
  export USE_LIBUV=0
  local watcher='' inside=()
  if [[ -n $shaped ]]; then
    MASTER_ADDR=10.79.1.1
    MASTER_PORT=$(free_tcp_port ip netns exec "${train_ns[0]}")
    shaped_watch "${train_ns[1]}" gwv1 "$run_dir/$layout-$backend.received"
    watcher=$!
    on_exit end_process "$watcher"
  else
    MASTER_PORT=$(free_tcp_port)
  fi
  for ((rank = 0; rank < world; rank++)); do
    if [[ -n $shaped ]]; then
      inside=(ip netns exec "${train_ns[rank / members]}"
        env "GLOO_SOCKET_IFNAME=gwv$((rank / members))")
    fi
    RANK=$rank GRADWIRE_SOCKET=$(daemon_socket $((rank / members))) \
      "${inside[@]}" "$python" "$repo_root/scripts/demo/train.py" --backend "$backend" \
      --out "$run_dir/$layout" \
      --layout "$layout" ${format:+--format "$format"} \
      --model "$model" --batch "$batch" --steps "$steps" --members "$members" \
      > >(sed -u 's/^/       /') 2>"$run_dir/$backend-$rank.err" </dev/null &
    pids[$!]=$rank
    on_exit end_process $!
  done
  # The first process that fails ends the job, because the others would wait for it.
  while ((${#pids[@]} > 0)); do
    wait -n -p ended "${!pids[@]}" || status=$?
    rank=${pids[$ended]}
    unset "pids[$ended]"
    ((status == 0)) || break
  done
  if ((status != 0)); then
    for i in "${!pids[@]}"; do end_process "$i"; done
    for ((i = 0; i < ranks; i++)); do tail -n 5 "$(daemon_log "$i")" >&2; done
    tail -n 15 "$run_dir/$backend-$rank.err" >&2
    die "process $rank of the job with $backend ended with status $status; it said the above."
  fi
  [[ -n $watcher ]] || return 0
  end_process "$watcher"
  note "host 1 received $(cat "$run_dir/$layout-$backend.received") Gbit/s in its best second"
}

daemon_pin_lanes "$ranks"
if [[ -n $shaped ]]; then
  step "joining two namespaces by a link of $shaped Gbit/s, MTU 1500"
  shaped_hosts "$shaped"
  train_ns=("${daemon_netns[@]}")
  blast=$(shaped_blast "${train_ns[0]}" "${train_ns[1]}" gwv1 10.79.1.2)
  note "a UDP blast gets $blast Gbit/s through"
  step "starting 2 daemons there"
  shaped_daemons_start "$shaped" || die "the daemons did not start."
else
  step "starting $ranks daemons, joined by memif links"
  memif_ring_start "$ranks" || die "the daemons did not start."
fi
for ((i = 0; i < ranks; i++)); do
  note "daemon $i: process ${daemon_pids[i]}, $(daemon_socket "$i")"
done
for layout in $layouts; do
  mkdir "$run_dir/$layout"
  step "training with gradwire, $layout: $world processes, $members at each daemon, $steps steps"
  train gradwire "$layout"
done
for format in ${formats//,/ }; do
  step "training with gradwire, hook, gradients as $format: $world processes, $steps steps"
  train gradwire hook "$format"
done
step "ending the daemons"
for ((i = 0; i < ranks; i++)); do daemon_end "$i" "${daemon_pids[i]}"; done
for layout in $layouts; do
  step "training with Gloo, $layout: the same seed, $world processes, $steps steps"
  train gloo "$layout"
done
for layout in $layouts; do
  step "comparing: $layout"
  plots=()
  [[ $layout != hook ]] || plots=(--plot "$plot")
  "$python" "$repo_root/scripts/demo/compare.py" "$run_dir/$layout" --world "$world" \
    --tolerance "$tolerance" --formats "$formats" "${plots[@]}"
done
[[ $layouts != hook ]] || note "loss and time by step: $plot"
step "done; everything that was started or changed is put back"
