# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# When each suite that .ci/run leaves out last ran whole and passed: a line for each in
# test/last-runs.txt, which the suite's own script writes. Whoever commits it shows it to others.

last_runs_file=$repo_root/test/last-runs.txt
# As the suite began: whoever commits meanwhile has not had it tested.
last_run_commit=$(git -C "$repo_root" rev-parse --short HEAD 2>/dev/null || echo unknown)

# last_run_write SUITE TEXT: the suite has passed, whole. TEXT says what else is worth knowing.
last_run_write() {
  local suite=$1 text=$2 line
  line=$(printf '%-9s %s  commit %s  %s: %s' "$suite" "$(date -u +%F)" "$last_run_commit" \
    "$(last_run_cpu)" "$text")
  {
    grep '^#' "$last_runs_file" 2>/dev/null
    { grep -v "^#\|^$suite " "$last_runs_file" 2>/dev/null && true; printf '%s\n' "$line"; } | sort
  } >"$last_runs_file.part" && mv "$last_runs_file.part" "$last_runs_file" ||
    note "suite $suite passed, but $last_runs_file cannot be written"
}

# last_run_cpu: this machine's processor, as its maker calls it, with family and model.
last_run_cpu() {
  awk -F': *' '/^model name/ && !name {name = $2} /^cpu family/ && !family {family = $2}
    /^model[[:space:]]*:/ && !model {model = $2}
    END {printf "%s family %s model %s", name, family, model}' /proc/cpuinfo
}

# last_run_show SUITE WHAT: a line for whoever reads CI's output.
last_run_show() {
  local line
  line=$(grep "^$1 " "$last_runs_file" 2>/dev/null) || line="never recorded"
  note "$1 ($2): ${line#"$1"}" | tr -s ' ' | sed 's/^ /       /'
}
