#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Daemons with the cluster's key: what their start, status and metrics say of it, which joins are
# refused by name, and how keys are rotated without a restart. Nothing that is said has a key.
. "$(dirname "$0")/../_init.sh"

first=$run_dir/first.key second=$run_dir/second.key
other=$run_dir/other.key job=$run_dir/job.key
for file in "$first" "$other" "$job"; do
  "$gradwire_cli" key make "$file" >>"$run_dir/made.out"
done
id=$("$gradwire_cli" key show "$first")
other_id=$("$gradwire_cli" key show "$other")
job_id=$("$gradwire_cli" key show "$job")

# sums NAME [VARIABLE=VALUE]...: a group of both daemons sums; its output is in NAME.out.
sums() {
  local name=$1
  shift
  env "$@" "$python" "$programs/sums.py" --sizes 1000 --join-timeout 20 $(sockets 2) \
    >"$run_dir/$name.out" 2>&1
}
# refused WHAT PATTERN VARIABLE=VALUE...: that group is refused by these words.
refused() {
  local what=$1 pattern=$2
  shift 2
  ! sums refused "$@" || fail "$what: the group was formed"
  expect_text "$what" "$pattern" "$run_dir/refused.out"
}
key_load() { "$gradwire_cli" key load --socket "$(daemon_socket "$1")"; }
# restart INDEX FLAG...: that daemon, with these flags.
restart() {
  local index=$1
  shift
  expect_stop "$index" TERM
  memif_rank_start "$index" 2 "$@"
  daemon_wait_ready "$index"
}

step "a daemon whose key file is refused does not start"
memif_rank_start 0 2 --security.key_file "$run_dir/none.key"
eventually 20 daemon_gone 0 || fail "it runs without its key"
expect_text "it names the file" "key file $run_dir/none.key: open: No such file" "$(daemon_log 0)"

memif_ring_start 2 --security.key_file "$first" --security.second_key_file "$second"
expect_text "the log says which key it has" "security: mode off, minimum off, keys $id" \
  "$(daemon_log 0)"
expect "a group that wants nothing is formed" sums off
"$gradwire_cli" status --socket "$(daemon_socket 0)" >"$run_dir/status.out"
expect_text "the status shows it" "^  security: off, minimum off, key $id$" "$run_dir/status.out"

for mode in authenticate encrypt; do
  expect "a group whose job wants $mode is formed, and sums" sums "$mode" GRADWIRE_SECURITY="$mode"
  expect_text "the log says which mode it has" "formed: .* security $mode by key $id" \
    "$(daemon_log 0)"
done
expect "a job's own key adds to it" sums job GRADWIRE_SECURITY=encrypt GRADWIRE_JOB_KEY_FILE="$job"
refused "a job's key needs a mode" \
  "the job has a key of its own, and no rank wants more than off: the job's key $job_id" \
  GRADWIRE_JOB_KEY_FILE="$job"
refused "a variable that is wrong" "GRADWIRE_SECURITY is 'tls'" GRADWIRE_SECURITY=tls
chmod 644 "$job"
refused "a job's key that others can read" 'job.key: has mode 0644' GRADWIRE_JOB_KEY_FILE="$job"

# A rotation, on one daemon after the other.
cp "$other" "$second"
for i in 0 1; do
  key_load "$i" >"$run_dir/load.out"
  expect_text "daemon $i has a second key" "^second key $other_id$" "$run_dir/load.out"
  mv "$first" "$run_dir/old.key"
  mv "$second" "$first"
  mv "$run_dir/old.key" "$second"
  key_load "$i" >"$run_dir/load.out"
  expect_text "it is the first now" "^key $other_id$" "$run_dir/load.out"
  expect "groups are formed" sums rotated
  ((i == 1)) || { mv "$first" "$run_dir/old.key" && mv "$second" "$first" &&
    mv "$run_dir/old.key" "$second"; }
done
rm "$second"
key_load 0 >"$run_dir/load.out"
expect_text "the old one is gone" "^key $other_id$" "$run_dir/load.out"
expect "nothing else is said" test "$(wc -l <"$run_dir/load.out")" = 1
expect_text "the log says so" "the key files were read again: .* keys $other_id$" "$(daemon_log 0)"
chmod 640 "$first"
! key_load 0 >"$run_dir/load.out" 2>&1 || fail "a file that others can read was taken"
expect_text "a bad file is named" 'has mode 0640, must be 0600 or 0400' "$run_dir/load.out"
chmod 600 "$first"
key_load 1 >"$run_dir/load.out"
expect "groups are formed by the new key alone" sums new

restart 1
no_key='rank 1 has no key, and rank 0 wants encrypt|'
no_key+='the job wants encrypt, and this daemon has no key'
refused "a rank without a key is named on both sides" "$no_key" GRADWIRE_SECURITY=encrypt
! key_load 1 >"$run_dir/load.out" 2>&1 || fail "a daemon without a key read one"
expect_text "it says why it has none" 'set security.key_file' "$run_dir/load.out"
expect "groups that want nothing are formed" sums mixed

restart 1 --security.key_file "$first" --security.mode encrypt --security.minimum authenticate
refused "a job below the minimum is refused" \
  'the job wants off, and security.minimum is authenticate' GRADWIRE_SECURITY=off
expect "one rank that wants more is enough" sums highest
expect_text "the rank that wants less seals too" "formed: .* security encrypt by key $other_id" \
  "$(daemon_log 0)"

for file in "$first" "$other" "$job"; do
  start=$(od -An -v -tx1 -N6 "$file" | tr -d ' \n')
  ! grep -qaiF "$start" "$run_dir"/*.out "$run_dir"/*.log || fail "a key was said: $file"
done
expect_stop 0 TERM
expect_stop 1 TERM
