#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# One user takes what the control thread gives to one user, and nobody reads the daemon's log.
# Another user's requests are answered, its groups form and its ops go on; then the daemon stops
# when it is told to. One that starts without standard descriptors writes nothing into its own
# files.
. "$(dirname "$0")/../_init.sh"

make_namespaces 1500
for i in 2 3 4 12 13 14; do ip -n "$netns_b" addr add "10.77.0.$i/16" dev gwb; done
chmod 755 "$run_dir"
daemon_netns[0]=$netns_a
daemon_write_config 0 "net_af_packet0=10.77.0.1/16"
port=(--vdev net_af_packet0,iface=gwa,blocksz=65536,framesz=2048,framecnt=512)

# with_descriptors REDIRECTION: $gradwired starts with them.
real_gradwired=$gradwired
with_descriptors() {
  printf '#!/bin/bash\nexec "%s" "$@" %s\n' "$real_gradwired" "$1" >"$run_dir/gradwired"
  chmod +x "$run_dir/gradwired"
  gradwired=$run_dir/gradwired
}

step "a daemon starts, though its log takes a page and nobody reads it"
mkfifo "$run_dir/unread"
exec 8<>"$run_dir/unread"
"$python" -c 'import fcntl; fcntl.fcntl(8, fcntl.F_SETPIPE_SZ, 4096)'
with_descriptors "2>'$run_dir/unread' 8>&-"
daemon_start 0 "${port[@]}" -- --daemon.socket_mode 0666 --limits.user_memory_mib 64
daemon_wait_ready 0 60 || fail "the daemon does not start"

background sums "$python" "$programs/sums.py" --until "$run_dir/enough" \
  --sizes 0,1,1000,100003 $(sockets 1)
eventually 30 grep -q running "$run_dir/sums.out" || fail "no sum got through"
expect "root is served beside a user that takes all it can" \
  "$python" "$hostile/fair_share.py" "$(daemon_socket 0)"
expect "root is served beside a user that sends what takes ten minutes to close" \
  timeout -k 5 120 "$python" "$hostile/lingering.py" "$(daemon_socket 0)"
touch "$run_dir/enough"
expect_ended "root's sums were right all the time" sums
freed() {
  "$python" "$programs/status.py" "$(daemon_socket 0)" --expect-no-clients
}
eventually 30 freed || { freed || true; fail "the daemon keeps what nobody had"; }
expect_stop 0 TERM

step "a daemon starts without standard descriptors"
with_descriptors '<&- >&- 2>&-'
daemon_start 0 "${port[@]}"
answers() { "$gradwire_cli" status --socket "$(daemon_socket 0)"; }
eventually 60 answers || fail "the daemon does not answer"
[[ $(cat "$(daemon_socket 0).lock") == "${daemon_pids[0]}" ]] ||
  fail "its lock file has: $(cat "$(daemon_socket 0).lock")"
expect_stop 0 TERM
