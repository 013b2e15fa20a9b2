# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What every guest's story sources first: daemons, the bench, and how a story ends.
set -uo pipefail
bin=/opt/gradwire/bin
setup_host=/opt/gradwire/scripts/setup-host.sh
export LD_LIBRARY_PATH=$bin
export PATH=$bin:$PATH
work=/tmp/story
mkdir -p "$work"
pids=()

say() { printf '[%s] %s\n' "$(cut -d. -f1 /proc/uptime)" "$*"; }
# fail TEXT: the story ends here; the host looks for its last line.
fail() {
  printf 'FAILED: %s\n' "$*"
  tail -n 25 "$work"/*.log "$work"/*.out 2>/dev/null
  dmesg | tail -n 15
  exit 1
}
expect() {
  local what=$1
  shift
  "$@" || fail "$what: $*"
  say "$what"
}
driver_of() { basename "$(readlink "/sys/bus/pci/devices/$1/driver")" 2>/dev/null; }
interface_of() {
  ls -d "/sys/bus/pci/devices/$1"/net/* "/sys/bus/pci/devices/$1"/virtio*/net/* 2>/dev/null |
    head -n 1 | xargs -r basename
}

# daemon NAME LCORES ADDRESS IP POLLING [ADDRESS IP]...: in networks of 24 bits, in IPv6 of 64.
daemon_memory=(-m 192)
silence_ms=20000
daemon() {
  local name=$1 lcores=$2 prefix devices=()
  cat >"$work/$name.toml" <<TEXT
[daemon]
name = "$name"
control_socket = "$work/$name.sock"
[lanes]
count = 1
polling = "$5"
nice = ${nice:--20}
[timeouts]
silence_ms = $silence_ms
ping_ms = 1000
TEXT
  set -- "$3" "$4" "${@:6}"
  while (($# > 0)); do
    prefix=24
    [[ $2 != *:* ]] || prefix=64
    printf '[[port]]\ndevice = "%s"\nip = "%s/%s"\nmtu = %s\n' "$1" "$2" "$prefix" \
      "${mtu:-9000}" >>"$work/$name.toml"
    devices+=(-a "$1")
    shift 2
  done
  gradwired --lcores "$lcores" "${devices[@]}" --file-prefix "$name" "${daemon_memory[@]}" \
    --no-telemetry -- --config "$work/$name.toml" >"$work/$name.log" 2>&1 </dev/null &
  pids+=($!)
  daemon_pid[$name]=$!
}
declare -A daemon_pid=()
daemon_ready() {
  local tries=600
  while ((tries-- > 0)); do
    grep -q 'gradwired ready' "$work/$1.log" && return 0
    kill -0 "${daemon_pid[$1]}" 2>/dev/null || break
    sleep 0.1
  done
  fail "daemon $1 is not ready"
}
daemons_end() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid"; done
  for pid in "${pids[@]}"; do wait "$pid" || fail "a daemon left with status $?"; done
  pids=()
}

# bench NAME OPTION...: all ranks, or those of this machine; NAME.R.json of rank R. The words of its
# command are those that the function bench_rank R prints.
bench_ranks=(0 1) bench_nranks=2 bench_meet=$work/meet
bench() {
  local name=$1 rank ranks=() status=0
  shift
  rm -rf "$work/meet"
  for rank in "${bench_ranks[@]}"; do
    mapfile -t own < <(bench_rank "$rank")
    "${own[@]}" --rank "$rank" --nranks "$bench_nranks" --rendezvous "$bench_meet" \
      --timeout 120 --check --json "$work/$name.$rank.json" "$@" \
      >"$work/$name.$rank.out" 2>&1 </dev/null &
    ranks+=($!)
  done
  for rank in "${ranks[@]}"; do wait "$rank" || status=$?; done
  ((status == 0)) || fail "$name: the bench left with $status"
  sed 's/^/    /' "$work/$name.${bench_ranks[0]}.out"
  python3 - "$work/$name".[0-9].json <<'EOS' || fail "$name: #wrong is not 0 everywhere"
import json, sys
for name in sys.argv[1:]:
    results = json.load(open(name))["results"]
    assert results and all(size["wrong"] == 0 for size in results), results
EOS
}

# table HEAD KIND JSON... [KIND JSON...]...: a column for each JSON, of the same transports in the
# same order for each kind; the last one, gradwire, is what the others are divided by. CPU time is
# that of the rank's whole machine, all its processes and the kernel, divided by the ops.
table() {
  printf 'table: %s; p50 and CPU time of an op in us, #wrong 0 everywhere\n' "$1"
  python3 - "${@:2}" <<'EOS'
import json, sys
long = {"tcp": "kernel TCP", "rdma": "SoftRoCE", "daemon": "gradwire by vfio"}
short = {"tcp": "TCP", "rdma": "SoftRoCE", "daemon": "gradwire"}
rows = []
for word in sys.argv[1:]:
    if word.endswith(".json"):
        rows[-1][1].append(json.load(open(word)))
    else:
        rows.append((word, []))
names = [report["transport"] for report in rows[0][1]]
head = [long[name] for name in names] + [f"{short[name]} / gradwire" for name in names[:-1]]
head += [f"CPU {short[name]}" for name in names]
print("| NIC | size | " + " | ".join(head) + " |")
print("| --- | ---: |" + " ---: |" * len(head))
for kind, reports in rows:
    assert [report["transport"] for report in reports] == names, kind
    for results in zip(*(report["results"] for report in reports), strict=True):
        assert len({r["size_bytes"] for r in results}) == 1, results
        times = [r["time_p50_us"] for r in results]
        used = [r["machine_cpu_s"] / r["iterations"] * 1e6 for r in results]
        cells = [f"{t:.0f}" for t in times] + [f"{t / times[-1]:.2f}" for t in times[:-1]]
        cells += [f"{t:.0f}" for t in used]
        print(f"| {kind} | {results[0]['size_bytes']} | " + " | ".join(cells) + " |")
EOS
}
