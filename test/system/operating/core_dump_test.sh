#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A core dump of a daemon has no key: neither the cluster's nor a job's, nor one that was drawn or
# made of them, while an encrypted group runs. Nor has one of the process that brought the job's
# key.
. "$(dirname "$0")/../_init.sh"

[[ ${GRADWIRE_SANITIZE:-none} == none ]] || skip "a sanitizer's own memory is left out of dumps too"
"$python" -c 'from peer import security' || skip "python3-cryptography is missing"
cluster=$run_dir/cluster.key second=$run_dir/second.key job=$run_dir/job.key
for file in "$cluster" "$second" "$job"; do "$gradwire_cli" key make "$file" >/dev/null; done

# searched WHAT PID TEXT ARGUMENT...: no secret lies in what a dump of that process has.
searched() {
  local what=$1 pid=$2 text=$3
  shift 3
  expect "$what" "$python" "$programs/core_secrets.py" --pid "$pid" --text "$text" \
    --cluster "$cluster" --cluster "$second" --job "$job" "$@"
}

# The search finds a key that is not kept as it should be.
background careless "$python" -c "
import sys, time
key = open(sys.argv[1], 'rb').read()
print('running', flush=True)
time.sleep(600)" "$job"
eventually 20 grep -q running "$run_dir/careless.out" || fail "Python does not run"
"$python" -c 'import sys; open(f"/proc/{sys.argv[1]}/mem", "rb")' "${background[careless]}" ||
  skip "no process may read another one's memory here (kernel.yama.ptrace_scope)"
! "$python" "$programs/core_secrets.py" --pid "${background[careless]}" --text "$job" \
  --job "$job" >"$run_dir/careless.found" || fail "a key on the heap was not found"
expect_text "a key on the heap is found" 'job.key: half of its key lies in' \
  "$run_dir/careless.found"

memif_ring_start 2 --security.key_file "$cluster" --security.second_key_file "$second" \
  --security.mode encrypt
background sums env GRADWIRE_JOB_KEY_FILE="$job" "$python" "$programs/sums.py" \
  --sizes 1000,100000 --join-timeout 20 --until "$run_dir/stop" $(sockets 2)
eventually 30 grep -q running "$run_dir/sums.out" || fail "the group does not run"
expect_text "it is encrypted" 'formed: .* security encrypt by key' "$(daemon_log 0)"

for i in 0 1; do
  searched "daemon $i shows no key in a dump" "${daemon_pids[i]}" "$(daemon_socket "$i")" \
    --keeps --drawn
done
searched "neither does the process that brought the job's key" "${background[sums]}" \
  "$(basename "$job")"

touch "$run_dir/stop"
expect_ended "the sums were right" sums
forgot() {
  "$python" "$programs/core_secrets.py" --pid "${daemon_pids[$1]}" --text "$(daemon_socket "$1")" \
    --forgot "$job" >"$run_dir/forgot.out" 2>&1
}
for i in 0 1; do
  step "daemon $i has forgotten the job's key"
  eventually 20 forgot "$i" || { cat "$run_dir/forgot.out" && fail "it has not"; }
  searched "it shows no key after the group either" "${daemon_pids[i]}" "$(daemon_socket "$i")"
done
expect_stop 0 TERM
expect_stop 1 TERM
