#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Times all-reduce with gradwire and with the alternatives, in turns, on the same number of cores.
. "$(dirname "$0")/lib/setup.sh"

usage() {
  cat <<TEXT
scripts/compare.sh [--link memif|veth] [--shaped GBIT] [--reps N] [--sizes LIST] [--quick] ...

Compares fp32 all-reduce of two ranks, on one core each, or of more that share cores. Runs these in
turn, several times: gradwire embedded (its own lanes), gradwire through the daemon, gradwire-perf's
ring over kernel TCP (by system calls and by io_uring; the better counts), Gloo, Open MPI over TCP
(with its own choice of algorithm and with its ring; the better counts) and, over memif, the driver
without a protocol and Open MPI over shared memory. Prints a table of times and bandwidths with
ratios, and which bars are reached; writes JSON, a report and plots. If something is unavailable,
the table says why. First installs packages, reserves hugepages and builds; at the end stops and
restores everything it started or changed. Run it as root on an idle machine.

  --link memif     two processes on this machine, gradwire over memif, TCP over loopback (default)
  --link veth      two network namespaces joined by a veth: gradwire over af_xdp, TCP on the same
                   device, with segmentation offloads off and on
  --shaped GBIT    of --link veth, two ranks: all that crosses it passes a token bucket at each end,
                   so it is as fast as an Ethernet of that rate, 0.01 to 10. gradwire sends by
                   af_packet, since af_xdp goes past the bucket. What a UDP blast gets through, and
                   what each row received in its best second, are in the report. Default sizes
                   then 64,64K,1M,16M,64M
  --ranks N        2 to 8, default 2; more only over --link veth: namespaces joined by a bridge,
                   and where there are fewer cores than ranks they share them and sleep or yield
                   while they wait. Default sizes then 64,8K,64K,1M
  --hosts A,B      two real hosts over ssh (or the command in GRADWIRE_SSH) that have this tree
                   built at this path, and hugepages; needs --ports and --addresses. The daemon's
                   row uses daemons that already run there, at the default socket
  --ports P,Q      PCI addresses of their NICs, for gradwire
  --addresses X,Y  addresses of their kernels in one network, for TCP; and for row rdma, where both
                   hosts have an RDMA device, its addresses of RoCEv2
  --lane-ips X/N,Y/N  addresses of the lanes; default 10.78.0.1/24,10.78.0.2/24
  --reps N         how often to run everything, 1 to 100; default 5
  --sizes LIST     bytes, with K, M, G; default 64,1K,64K,1M,16M,64M,256M
  --rate GBIT      rate of the link, for the theoretical minimum 2(n-1)/n x size / rate
  --mtu N          of the link; default 9000 (memif: payloads of 8 KiB), veth 1500
  --cores A,B      cores of rank 0 and rank 1, and of further ranks in turn; default the first two
                   allowed ones, for more ranks all of them
  --beside busy    measure shared cores: run each row alone and beside one ordinary busy process
                   pinned to each core, in turn. Embedded ranks and lanes are then adaptive, and
                   the TCP ring sleeps while it waits. Over memif; default rows gradwire, daemon,
                   tcp and tcp-uring, default sizes 64,64K,1M,16M
  --collective C   another than all-reduce: reduce-scatter, all-gather, broadcast, reduce,
                   all-to-all or send-recv (each rank to the next). Default rows daemon, gloo,
                   mpi-tcp and mpi-shm; a size is that of the larger buffer
  --rows LIST      only these: gradwire gradwire-1408 daemon bare tcp tcp-uring rdma gloo mpi-tcp
                   mpi-tcp-ring mpi-shm; and these, which run only if they are named:
                   daemon-authenticate, daemon-encrypt, gradwire-authenticate, gradwire-encrypt:
                   rows daemon and gradwire with a key, whose packets are sealed in that mode
                   tls: the TCP ring by TLS 1.3 with AES-128-GCM, sealed by the kernel if it and
                   OpenSSL can, else by OpenSSL; the report says which of the two it was
  --quick          few ops and 2 repetitions (or --reps): checks only that everything runs
  --out DIR        folder for JSON, report and plots; default BUILD/compare
  --save           also keep the report and its plots in doc/results, over the last of its name
  --build DIR      build folder; default build
  --no-setup       do not install packages, reserve hugepages or build
  --help           this text
TEXT
}

link=memif
shaped=
reps=
nranks=2
sizes=
beside=
collective=all-reduce
rate=
mtu=
cores=
rows=
quick=0
out=
save=0
build=$repo_root/build
setup=1
hosts=
ports=
addresses=
lane_ips=10.78.0.1/24,10.78.0.2/24
while (($# > 0)); do
  case $1 in
    --link) link=${2:-} && shift ;;
    --shaped) shaped=${2:-} && shift ;;
    --reps) reps=${2:-} && shift ;;
    --ranks) nranks=${2:-} && shift ;;
    --sizes) sizes=${2:-} && shift ;;
    --collective) collective=${2:-} && shift ;;
    --beside) beside=${2:-} && shift ;;
    --rate) rate=${2:-} && shift ;;
    --mtu) mtu=${2:-} && shift ;;
    --cores) cores=${2:-} && shift ;;
    --rows) rows=${2:-} && shift ;;
    --hosts) hosts=${2:-} && shift ;;
    --ports) ports=${2:-} && shift ;;
    --addresses) addresses=${2:-} && shift ;;
    --lane-ips) lane_ips=${2:-} && shift ;;
    --out) out=${2:-} && shift ;;
    --build) build=${2:-} && shift ;;
    --quick) quick=1 ;;
    --save) save=1 ;;
    --no-setup) setup=0 ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  (($# > 0)) && shift
done
. "$repo_root/scripts/lib/shaped_link.sh"
. "$repo_root/scripts/compare/arguments.sh"
check_arguments

need_root
if ((setup)); then
  need_debian
  install_packages build run train plot compare
  reserve_hugepages "$hugepages_wanted"
  mount_hugetlbfs
  build_targets=(gradwired gradwire gradwire-perf)
  build_tree "$build" gcc --buildtype debugoptimized -Db_sanitize=none
fi
build=$(cd "$build" && pwd)
gradwired=$build/app/gradwired/gradwired
gradwire_perf=$build/app/gradwire-perf/gradwire-perf
gradwire_cli=$build/app/gradwire/gradwire
[[ -x $gradwired && -x $gradwire_perf ]] ||
  die "$build has no gradwired and gradwire-perf: build first."
out=${out:-$build/compare}
mkdir -p "$out"
out=$(cd "$out" && pwd)
. "$repo_root/scripts/lib/daemons.sh"
. "$repo_root/scripts/compare/links.sh"
. "$repo_root/scripts/compare/cores.sh"
. "$repo_root/scripts/compare/rows.sh"
run_dir_make
mkdir "$run_dir/runs"
on_exit end_started
on_exit end_busy
make_key
"link_up_$link"
build_mpi_program
build_core_programs

step "$link, $reps repetitions of ${#run_rows[@]} rows in turns: ${run_rows[*]}"
for ((rep = 1; rep <= reps; rep++)); do
  for variant in $(link_variants); do
    link_variant "$variant"
    for row in "${run_rows[@]}"; do
      measure_others
      run_row "$row" "$variant" "$rep"
    done
  done
done
write_meta "$run_dir/runs/meta.json"

step "report"
name=compare-$link${beside:+-beside}${shaped:+-shaped}
[[ $collective == all-reduce ]] || name+=-$collective
((nranks == 2)) || name+=-$nranks-ranks
report=("$python" "$repo_root/scripts/compare/report.py" "$run_dir/runs" --out "$out")
((!save)) || report+=(--save "$repo_root/doc/results")
"${report[@]}"
if "$python" -c 'import matplotlib' 2>/dev/null; then
  "$python" "$repo_root/scripts/plot_compare.py" "$out/$name.json" \
    --out "$out/$name" | sed 's/^/       /'
else
  ((!save)) || die "--save keeps plots too, and python3-matplotlib is not installed."
  note "no plots: python3-matplotlib is not installed"
fi
if ((save)); then
  cp "$out/$name-busbw.png" "$out/$name-times.png" "$repo_root/doc/results/"
  note "kept in doc/results: $name.md and its plots"
fi
step "done; JSON, report and plots are in $out"
