#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A Prometheus of its own, on loopback, scrapes two daemons while they reduce: the metrics follow
# its rules, every query of the Grafana dashboard and every alert rule has data.
. "$(dirname "$0")/../_init.sh"

command -v prometheus >/dev/null && command -v promtool >/dev/null ||
  skip "prometheus is not installed (packages.debian, [observe])"
rules=$repo_root/config/prometheus/gradwire-alerts.yml

expect "the alert rules are rules" promtool check rules "$rules"
expect "each fires on what it is for" \
  promtool test rules "$repo_root/config/prometheus/gradwire-alerts_test.yml"

# free_ports COUNT: TCP ports of loopback that nobody has.
free_ports() {
  "$python" -c '
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in held))' "$1"
}
read -r port_a port_b port_prometheus < <(free_ports 3)
memif_rank_start 0 2 --daemon.metrics "127.0.0.1:$port_a"
memif_rank_start 1 2 --daemon.metrics "127.0.0.1:$port_b"
for i in 0 1; do daemon_wait_ready "$i" || fail "the daemons do not start with metrics"; done

cat >"$run_dir/prometheus.yml" <<CONFIG
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["$rules"]
scrape_configs:
  - job_name: gradwire
    static_configs: [{targets: ["127.0.0.1:$port_a", "127.0.0.1:$port_b"]}]
CONFIG
background prometheus prometheus --config.file "$run_dir/prometheus.yml" \
  --web.listen-address "127.0.0.1:$port_prometheus" --storage.tsdb.path "$run_dir/tsdb"

mkdir "$run_dir/job"
for rank in 0 1; do
  background "job-$rank" "$gradwire_perf" --socket "$(daemon_socket $rank)" --rank $rank \
    --nranks 2 --rendezvous "$run_dir/job" -b 1M -e 1M -n 1000000 -w 1
done
page() {
  "$python" -c 'import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode())' "$1"
}
moved() { page "http://127.0.0.1:$port_a/metrics" | grep -q '^gradwire_op_bytes_total [1-9]'; }
eventually 20 moved || fail "no op is counted"
page "http://127.0.0.1:$port_a/metrics" >"$run_dir/metrics"
expect "promtool finds nothing to say about the metrics" promtool check metrics <"$run_dir/metrics"

background silent "$python" -c '
import socket, sys, time
held = [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(200)]
print("held", flush=True)
time.sleep(1000)' "$port_a"
eventually 30 grep -q held "$run_dir/silent.out" || fail "the connections are not taken"
expect "200 connections that say nothing keep no scrape waiting" within 30 "$python" -c '
import sys, urllib.request
text = urllib.request.urlopen(sys.argv[1]).read().decode()
assert "gradwire_op_bytes_total" in text, text' "http://127.0.0.1:$port_a/metrics"
kill "${background[silent]}"

up() { page "http://127.0.0.1:$port_prometheus/-/ready"; }
eventually 30 up || fail "Prometheus does not start: $(tail -n 3 "$run_dir/prometheus.out")"
expect "every query has data" "$python" "$programs/metrics.py" \
  "http://127.0.0.1:$port_prometheus" "$repo_root/config/grafana/gradwire.json"
