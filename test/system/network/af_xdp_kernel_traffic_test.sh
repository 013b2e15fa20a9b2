#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The kernel's traffic on an af_xdp port's interface: with gradwire's XDP program a TCP connection
# lives on beside all-reduces; with the driver's own it does not.
. "$(dirname "$0")/../_init.sh"

kernel_b=10.80.0.2
interfaces_b=gwb

# start INDEX [FLAG...]
start() {
  local index=$1 device=(gwa gwb)
  shift
  daemon_start "$index" --vdev "net_af_xdp0,iface=${device[index]},start_queue=0,queue_count=1" \
    -- "$@"
}
ready() {
  daemon_wait_ready "$1" && return 0
  grep -qiE 'libbpf.*(not supported|Operation not permitted)|XDP.*not supported' \
    "$(daemon_log "$1")" && skip "this kernel or container does not allow AF_XDP sockets"
  fail "the daemons do not start over af_xdp"
}
# talk SECONDS [OPTION...]: from a to b, in the foreground.
talk() {
  local seconds=$1
  shift
  ip netns exec "$netns_a" "$python" "$programs/tcp_echo.py" talk "$kernel_b" 2222 \
    --seconds "$seconds" "$@"
}
sums() { "$python" "$programs/sums.py" --sizes "$1" $(sockets 2); }
has_program() { ip -n "$netns_b" link show "$interfaces_b" | grep -q 'prog/xdp'; }

make_namespaces 1500
ip -n "$netns_a" addr add 10.80.0.1/24 dev gwa
ip -n "$netns_b" addr add "$kernel_b/24" dev gwb
background server ip netns exec "$netns_b" "$python" "$programs/tcp_echo.py" \
  serve "$kernel_b" 2222
eventually 10 grep -q listening "$run_dir/server.out" || fail "the TCP server does not start"
expect "TCP before any daemon" talk 0.2

daemon_netns[0]=$netns_a
daemon_netns[1]=$netns_b
daemon_write_config 0 "net_af_xdp0=10.79.0.1/24,1500"
daemon_write_config 1 "net_af_xdp0=10.79.0.2/24,1500"
# Open while the daemons start, sum, are killed, start again, and stop.
background session ip netns exec "$netns_a" "$python" "$programs/tcp_echo.py" \
  talk "$kernel_b" 2222 --until "$run_dir/enough"
eventually 10 grep -q connected "$run_dir/session.out" || fail "there is no TCP session"
start 0
start 1
ready 0
ready 1
grep -q 'built without its XDP program' "$(daemon_log 0)" &&
  skip "this build has no XDP program: clang was missing"
expect_text "the daemon says what it takes" 'takes UDP port 18515 of 10.79.0.1' "$(daemon_log 0)"
expect "sums over af_xdp beside a TCP session" sums 1,1000,100000,1000000
expect "a new TCP connection" talk 0.2

step "a daemon that was killed leaves its program; the next one replaces it"
kill -KILL "${daemon_pids[1]}"
eventually 10 daemon_gone 1 || fail "SIGKILL did not end it"
wait "${daemon_pids[1]}" 2>/dev/null || true
has_program || fail "the killed daemon's program is gone: there is nothing to replace"
start 1
ready 1
expect "sums after that" sums 1,100000

step "without that daemon's record it is refused: somebody else's program is not removed"
kill -KILL "${daemon_pids[1]}"
eventually 10 daemon_gone 1 || fail "SIGKILL did not end it"
wait "${daemon_pids[1]}" 2>/dev/null || true
mv "$(daemon_socket 1).xdp" "$run_dir/record"
start 1
eventually 20 daemon_gone 1 || fail "the daemon starts over somebody else's program"
expect_text "with the fix" 'ip link set dev gwb xdp off' "$(daemon_log 1)"
mv "$run_dir/record" "$(daemon_socket 1).xdp"
start 1
ready 1
expect "sums after that, too" sums 1,100000

expect_stop 1 TERM
expect_stop 0 TERM
! has_program || fail "the XDP program is still attached"
touch "$run_dir/enough"
expect_ended "the TCP session lived through all of it" session
cat "$run_dir/session.out"
expect "TCP after the daemons" talk 0.2

# What would be without it; so that the story can fail.
start 1 --port.0.xdp_program driver
ready 1
expect_text "the driver's own program is warned of" 'and the kernel no longer gets them' \
  "$(daemon_log 1)"
step "with the driver's own program TCP is dead"
! talk 0.2 --patience 1 || fail "TCP lives without gradwire's program: the story shows nothing"
expect_stop 1 TERM
