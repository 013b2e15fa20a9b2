# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The scripts' output: one line for each step, with the time since the script
# began.

log_started_s=$SECONDS

log_elapsed() {
  local s=$((SECONDS - log_started_s))
  printf '%d:%02d' $((s / 60)) $((s % 60))
}

# step TEXT: a step begins.
step() { printf '[%s] %s\n' "$(log_elapsed)" "$*"; }

# note TEXT: what belongs to the step above.
note() { printf '       %s\n' "$*"; }

# die TEXT: the script cannot go on; every following argument is a further line.
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  local line
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

# need_numbers VALUE...: each has one to ten digits.
need_numbers() {
  local value
  for value in "$@"; do
    [[ $value =~ ^[0-9]{1,10}$ ]] || die "'$value' must be a number."
  done
}

# with_progress SECONDS LOGFILE WHAT COMMAND...: runs COMMAND with its output in LOGFILE, and says
# every SECONDS that it is still at it, with the last line of its output. Returns its exit status.
# A script that is interrupted meanwhile ends it (cleanup.sh).
progress_pid=
with_progress() {
  local every_s=$1 logfile=$2 what=$3
  shift 3
  "$@" >"$logfile" 2>&1 </dev/null &
  local pid=$! ticks=0
  progress_pid=$pid
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.2
    ticks=$((ticks + 1))
    if ((ticks % (every_s * 5) == 0)); then
      note "$what: $((ticks / 5)) s, $(tail -c 400 "$logfile" | tr '\r' '\n' | tail -n 1 |
        cut -c1-80)"
    fi
  done
  local status=0
  wait "$pid" || status=$?
  progress_pid=
  return "$status"
}
