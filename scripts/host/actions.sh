# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The only functions of setup-host.sh that change the host: each says what it does, records how to
# undo it (record.sh) and does it, or with --dry-run only says it. Paths are those of the host;
# $root goes before them.

actions_done=0
actions_reboot=0
actions_reload=0

# say TEXT: one step, as done or as it would be done.
say() {
  actions_done=$((actions_done + 1))
  if ((dry_run)); then printf 'would %s\n' "$*"; else printf '%s\n' "$*"; fi
}

# read_value PATH: its first line, nothing where there is no such file.
read_value() {
  local value=
  [[ -r $root$1 ]] && { IFS= read -r value <"$root$1" || true; }
  printf '%s' "$value"
}

# set_value PATH VALUE WHY: writes to a file of sysfs or procfs, unless it says so already.
set_value() {
  local path=$1 value=$2 why=$3 old
  [[ -e $root$path ]] || die "$path does not exist, but $why needs it."
  old=$(read_value "$path")
  [[ $old != "$value" ]] || return 0
  say "write $value to $path (it was ${old:-empty}): $why"
  ((dry_run)) && return 0
  record value "$path" "$old"
  write_value "$path" "$value" || die "$path refuses the value $value."
}

write_value() { { printf '%s\n' "$2" >"$root$1"; } 2>/dev/null; }

# make_file PATH WHY: the text on standard input is the file's from here on. $file_made says whether
# it was not before.
file_made=0
make_file() {
  local path=$1 why=$2 text
  text=$(cat && printf x)
  text=${text%x}
  file_made=0
  if [[ -f $root$path ]] && [[ $(cat "$root$path" && printf x) == "${text}x" ]]; then return 0; fi
  file_made=1
  say "make $path: $why"
  printf '%s' "$text" | sed 's/^/    /'
  ((dry_run)) && return 0
  make_folder "$(dirname "$path")"
  if [[ -e $root$path ]]; then
    record file "$path" "$(record_copy "$path")"
  else
    record file "$path" -
  fi
  printf '%s' "$text" >"$root$path"
}

# make_link PATH TARGET WHY
make_link() {
  local path=$1 target=$2 why=$3
  [[ $(readlink "$root$path" 2>/dev/null) != "$target" ]] || return 0
  [[ ! -e $root$path && ! -L $root$path ]] || die "$path is in the way of a link to $target."
  say "link $path to $target: $why"
  ((dry_run)) && return 0
  make_folder "$(dirname "$path")"
  record file "$path" -
  ln -s "$target" "$root$path"
}

# make_folder PATH: and those above it; each that was not there is recorded.
make_folder() {
  [[ $1 != / && $1 != . && ! -d $root$1 ]] || return 0
  make_folder "$(dirname "$1")"
  record folder "$1"
  mkdir "$root$1"
}

# run_recorded UNDO_COMMAND_WORDS -- COMMAND...: records the first, runs the second.
run_recorded() {
  local undo_words=()
  while [[ $1 != -- ]]; do
    undo_words+=("$1")
    shift
  done
  shift
  say "run: $*"
  ((dry_run)) && return 0
  ((${#undo_words[@]} == 0)) || record run "${undo_words[@]}"
  "$@" || die "'$*' failed."
}

# run_plain WHY COMMAND...: what needs no undoing, or is undone by something else that is recorded.
run_plain() {
  local why=$1
  shift
  say "run: $* ($why)"
  ((dry_run)) || "$@" || die "'$*' failed."
}

have() { command -v "$1" >/dev/null 2>&1; }
need_command() {
  have "$1" || die "$1 is not installed, but $2 needs it." "On Debian: apt-get install $3"
}

actions_summary() {
  ((actions_done)) || printf 'nothing to do: everything is already set up\n'
  if ((actions_reload)) && [[ -z $root ]] && have systemctl && [[ -d /run/systemd/system ]]; then
    run_plain "systemd reads its files" systemctl daemon-reload
  fi
  if ((actions_reboot)); then
    printf 'reboot for the boot arguments; %s\n' "then run gradwire doctor to check them"
  fi
}
