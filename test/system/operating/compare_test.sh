#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The comparison from end to end, with few ops of small sizes: over memif and over veth. What it
# says of speed means nothing here; that it says it, and of everything, does.
. "$(dirname "$0")/../_init.sh"

for module in torch matplotlib; do
  "$python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$module'))" ||
    skip "python3-$module is not installed: scripts/compare.sh installs it"
done
for program in mpirun mpicxx ethtool; do
  command -v $program >/dev/null ||
    skip "$program is not installed: scripts/compare.sh installs it"
done
[[ $GRADWIRE_SANITIZE == none ]] || skip "nothing is compared with sanitizers"
(($(env -u OMP_NUM_THREADS nproc) >= 2)) || skip "two ranks need a core each"
build=$(cd "$(dirname "$gradwired")/../.." && pwd)

compare() {
  "$repo_root/scripts/compare.sh" --no-setup --build "$build" --out "$run_dir/out" --quick \
    --reps 1 --sizes 64,64K "$@" >"$run_dir/compare.out" 2>&1 || {
    cat "$run_dir/compare.out"
    return 1
  }
}

expect "over memif" compare --link memif --rate 100
report=$run_dir/out/compare-memif.md
expect_text "all that can run did" '64 KB.*( \| +[0-9.,]+ (us|ms)){5,}' "$report"
expect_text "the bars are there" 'Open MPI over TCP / gradwire' "$report"
expect_text "and nothing is wrong" 'no element was wrong' "$report"
expect "beside busy processes" compare --beside busy
expect_text "the daemon is judged by its own time alone" \
  'daemon beside busy over alone, 64 KB, p50' \
  "$run_dir/out/compare-memif-beside.md"
expect_text "or by its wake-ups" \
  "embedded and twice two threads' wake-ups, alone, 64 B, p50 .*(reached|NOT REACHED)" \
  "$run_dir/out/compare-memif-beside.md"
for collective in reduce-scatter broadcast; do
  expect "$collective" compare --collective "$collective" --rows daemon,gloo,mpi-tcp
  report=$run_dir/out/compare-memif-$collective.md
  expect_text "the daemon and Open MPI did it" '64 KB \| .*(us|ms) .*(us|ms)' "$report"
  expect_text "and nothing is wrong" 'no element was wrong' "$report"
done
expect "sealed packets beside TLS" compare \
  --rows daemon,daemon-authenticate,daemon-encrypt,gradwire,gradwire-encrypt,tcp,tls
report=$run_dir/out/compare-memif.md
expect_text "all of them" '64 KB \|( +[0-9.,]+ (us|ms) \|){7}' "$report"
expect_text "it says who sealed" 'by TLS: TLSv1.3, TLS_AES_128_GCM_SHA256, sealed by ' "$report"
expect_text "and nothing is wrong" 'no element was wrong' "$report"
expect "over veth" compare --link veth --rows daemon,tcp,mpi-tcp
expect_text "with offloads" 'Segmentation offloads on' "$run_dir/out/compare-veth.md"
expect "over a veth of 1 Gbit/s" compare --link veth --shaped 1 --sizes 64K --rows daemon,tcp
report=$run_dir/out/compare-veth-shaped.md
expect_text "the rate bounds all" 'Theoretical minimum at 1 Gbit/s' "$report"
expect_text "what came through is shown" 'Gbit/s \|( +[01]\.[0-9]{2} \|){3}' "$report"
expect_text "and nothing is wrong" 'no element was wrong' "$report"
expect "three ranks, which share two cores" compare --link veth --ranks 3 --cores 0,1 \
  --rows daemon,tcp,mpi-tcp
report=$run_dir/out/compare-veth-3-ranks.md
expect_text "all of them" '64 KB \| .*(us|ms) .*(us|ms) .*(us|ms)' "$report"
expect_text "which the report says" 'SHARED CORES: there are more ranks than cores' "$report"
expect_text "and nothing is wrong" 'no element was wrong' "$report"
# Two namespaces as hosts, and what enters them instead of ssh.
make_namespaces 1500
ip -n "$netns_a" addr add 10.79.3.1/24 dev gwa
ip -n "$netns_b" addr add 10.79.3.2/24 dev gwb
cat >"$run_dir/ssh" <<SSH
#!/bin/bash
while [[ \$1 == -* ]]; do if [[ \$1 == -o ]]; then shift 2; else shift; fi; done
case \$1 in h0 | 10.79.3.1) name=$netns_a ;; *) name=$netns_b ;; esac
shift
exec ip netns exec \$name unshare --uts sh -c "hostname \$name; \$*"
SSH
chmod +x "$run_dir/ssh"
compare_hosts() {
  GRADWIRE_SSH=$run_dir/ssh ip netns exec "$netns_a" "$repo_root/scripts/compare.sh" --no-setup \
    --build "$build" --out "$run_dir/out" --quick --reps 1 --sizes 64,64K \
    --hosts h0,h1 --ports 0000:00:00.0,0000:00:00.1 --addresses 10.79.3.1,10.79.3.2 \
    --rows tcp,rdma,gloo,mpi-tcp \
    >"$run_dir/compare.out" 2>&1 || { cat "$run_dir/compare.out" && return 1; }
}
expect "two hosts" compare_hosts
expect_text "Gloo and Open MPI went between them" '64 KB \|.* (us|ms) \|.* (us|ms) \|.* (us|ms)' \
  "$run_dir/out/compare-hosts.md"
expect_text "RDMA says why it is not there" \
  '^Unavailable: RDMA ring of gradwire-perf: .*RDMA device' "$run_dir/out/compare-hosts.md"
for file in compare-{memif,veth}.json compare-{memif,veth}-{busbw,times}.png; do
  expect "$file is there" test -s "$run_dir/out/$file"
done
step "arguments are checked before anything runs"
for bad in "--link tcp" "--sizes 3" "--reps 0" "--mtu 90000" "--cores 0" "--cores 0,0" \
  "--rows pigeon" "--hosts a,b" "--ports 0000:00:00.0,0000:00:00.1" "--rate fast" \
  "--collective sum" "--collective reduce --rows tcp" "--collective reduce --beside busy" \
  "--beside nobody" "--beside busy --link veth" \
  "--shaped 1" "--link veth --shaped 0" "--link veth --shaped 40" "--link veth --shaped fast" \
  "--link veth --shaped 1 --ranks 3" \
  "--link veth --mtu 9000" "--ranks 1" "--ranks 3" "--link veth --ranks 9" \
  "--hosts a,b --ports 0000:00:00.0 --addresses 1.1.1.1,2.2.2.2"; do
  # shellcheck disable=SC2086
  ! "$repo_root/scripts/compare.sh" --no-setup --build "$build" $bad >"$run_dir/bad.out" 2>&1 ||
    fail "$bad was accepted"
  grep -q '^error: --' "$run_dir/bad.out" || fail "$bad: $(tail -n 1 "$run_dir/bad.out")"
done
[[ -z $(ip netns list | grep -E "^gwc") ]] || note "other comparisons run beside this one"
