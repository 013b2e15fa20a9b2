# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Ends what a script started and restores what it changed, however it exits:
# at the end, on an error, on SIGINT and on SIGTERM. Steps are undone in reverse order. Processes
# are ended by the process id that this script got when it started them, never by name.

cleanup_steps=()
cleanup_done=0

# on_exit COMMAND...: run COMMAND when the script leaves.
on_exit() { cleanup_steps+=("$(printf '%q ' "$@")"); }

cleanup_run() {
  local status=$?
  ((cleanup_done)) && return
  cleanup_done=1
  trap '' INT TERM
  # A minute, because an apt-get that is killed leaves work for its next call.
  [[ -z ${progress_pid:-} ]] || end_process "$progress_pid" 60
  local i
  for ((i = ${#cleanup_steps[@]} - 1; i >= 0; i--)); do
    eval "${cleanup_steps[i]}" || true
  done
  exit "$status"
}
trap cleanup_run EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# end_process PID [SECONDS]: asks with SIGTERM, then with SIGKILL after SECONDS (5). Only a child of
# this script: the number of one that has ended is soon another process's.
end_process() {
  local pid=$1 tries=$((${2:-5} * 20))
  [[ $(process_parent "$pid") == "$$" ]] || return 0
  kill -TERM "$pid" 2>/dev/null || return 0
  while ((tries-- > 0)) && kill -0 "$pid" 2>/dev/null; do
    [[ $(process_state "$pid") == Z ]] && break
    sleep 0.05
  done
  kill -KILL "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
}

# process_state PID: the letter of /proc/PID/stat (R, S, Z, ...), nothing if there is none.
process_state() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  stat=${stat##*) }
  printf '%s' "${stat%% *}"
}

# process_parent PID: the number of its parent, nothing if there is no such process.
process_parent() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  read -r _ stat _ <<<"${stat##*) }"
  printf '%s' "$stat"
}

# run_dir_make: a folder for sockets, logs and configurations; its name is in $run_dir, and it goes
# when the script leaves unless $GRADWIRE_KEEP_LOGS is set. It is not below $TMPDIR: a socket's path
# has at most 107 bytes, and a driver's arguments take no space.
run_dir_make() {
  run_dir=$(mktemp -d /tmp/gradwire-XXXXXX)
  if [[ -z ${GRADWIRE_KEEP_LOGS:-} ]]; then
    on_exit rm -rf "$run_dir"
  fi
}
