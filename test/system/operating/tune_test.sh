#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# gradwire tune at both ends of a memif link: both print the same proposal, which a daemon takes.
# A peer that is not there, a path that is not, and a daemon in the way are said, in bounded time.
. "$(dirname "$0")/../_init.sh"

# Below those that the kernel gives to connections; the all-reduces meet at the next one.
port=$((20000 + $$ % 12000))
step_seconds=60  # of the few that an all-reduce takes, where other programs have the cores
# tune INDEX ROLE... : one end, with that daemon's configuration.
tune() {
  local index=$1 role=server cpus
  shift
  ((index == 0)) || role=client
  cpus=$(allowed_cpus)
  within 300 "$gradwire_cli" tune --config "$(daemon_config "$index")" --perf "$gradwire_perf" \
    --bytes 1M --iterations 5 --windows 32 --step-seconds "$step_seconds" \
    --eal "--lcores 0@($cpus) --no-pci --no-telemetry -m $daemon_memory_mib --vdev $(
      memif_vdev 0 $role 0 "$index")" "$@"
}

daemon_write_config 0 "net_memif0=10.77.0.1/24,4096"
daemon_write_config 1 "net_memif0=10.77.0.2/24,9000"
background leader tune 0 --listen "$port" --wait 20
background follower tune 1 --peer "127.0.0.1:$port" --wait 20 --json
expect_ended "rank 0 has a proposal" leader
expect_ended "and so has rank 1" follower
cat "$run_dir/leader.out"
expect_text "no payload that the smaller MTU does not carry" "^payload +3968" "$run_dir/leader.out"
! grep -qE 'payload +8896' "$run_dir/leader.out" ||
  fail "a payload above the MTU of one end was tried"
expect_text "one line is the proposal" '<- proposed' "$run_dir/leader.out"
"$python" - "$run_dir/follower.out" "$run_dir/fragment.toml" <<'PYTHON'
import json
import sys
out = json.load(open(sys.argv[1], encoding="utf-8"))
ran = [t for t in out["trials"] if not t["error"]]
assert len(ran) >= 4, out["trials"]
assert all(t["busbw_gbps"] > 0 and t["latency_us"] > 0 for t in ran), ran
assert {t["step"] for t in ran} >= {"payload", "window"}
costs = [t for t in out["trials"] if t["step"] == "cost"]
assert len(costs) == 2 and costs[0]["payload_bytes"] > costs[1]["payload_bytes"], costs
assert all(t["best_us"] > 0 and t["best_64_us"] > 0 for t in costs if not t["error"]), costs
# Where other programs have the cores, the times may contradict each other: then that is said.
thresholds = [f"\n{key} = " in out["toml"] for key in
              ("direct_kib", "two_step_kib", "gathered_ranks", "gathered_kib")]
assert all(thresholds) or "# No thresholds of shapes: " in out["toml"], out["toml"]
chosen = out["trials"][out["chosen"]]
assert f"payload_bytes = {chosen['payload_bytes']}\n" in out["toml"], out["toml"]
open(sys.argv[2], "w", encoding="utf-8").write(out["toml"])
PYTHON
# A proposed rate comes under a [[port]] line of its own. It belongs to the port that is there, the
# last table before [lanes].
{
  sed '/^\[lanes\]/,$d' "$(daemon_config 0)"
  grep '^rate_gbps' "$run_dir/fragment.toml" || true
  sed '/^\[\[port\]\]/d; /^rate_gbps/d' "$run_dir/fragment.toml"
} >"$run_dir/proposed.toml"
expect "the daemon takes what is proposed" \
  "$gradwired" --check --config "$run_dir/proposed.toml" >"$run_dir/checked"
expect_text "with its payload" 'payload_bytes = [0-9]+' "$run_dir/checked"

step "nobody listens"
! tune 1 --peer "127.0.0.1:$port" --wait 0.5 >"$run_dir/alone" 2>&1 || fail "it found a peer"
expect_text "and where is said" "127.0.0.1:$port does not answer within 0.5 s" "$run_dir/alone"
step "nobody comes"
! tune 0 --listen "$port" --wait 0.5 >"$run_dir/alone" 2>&1 || fail "it found a peer"
expect_text "and what to do is said" "no peer connected to TCP port $port" "$run_dir/alone"

step "the control connection stands, and the link does not"
step_seconds=1
background leader tune 0 --listen "$port" --wait 20
sed -i 's/10.77.0.2/10.78.0.2/' "$(daemon_config 1)"
# By IPv6 if the kernel has it.
loopback=127.0.0.1
[[ ! -e /proc/net/if_inet6 ]] || loopback="[::1]"
background follower tune 1 --peer "$loopback:$port" --wait 20
! ended leader || fail "a proposal without a link"
! ended follower || fail "a proposal without a link"
expect_text "rank 0 says so" 'no all-reduce with the peer succeeded' "$run_dir/leader.out"
expect_text "rank 1 too" 'the peer gave up: no all-reduce' "$run_dir/follower.out"

memif_rank_start 0 2
daemon_wait_ready 0 || fail "the daemon does not start"
! tune 0 --listen "$port" >"$run_dir/busy" 2>&1 || fail "it tunes under a daemon"
expect_text "a daemon in the way is named" 'a daemon is running at .*gw0.sock' "$run_dir/busy"
