# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What was so before: one line a change, in words quoted for the shell, written before the change is
# made, so that a script that is cut short can be undone too. Kinds:
#   value PATH OLD      a file of sysfs or procfs
#   file PATH COPY      a file: its former text is in COPY; "-": there was none
#   folder PATH         was not there
#   mount PATH          was not mounted
#   bind ADDRESS DRIVER OVERRIDE INTERFACE UP MTU   a NIC's driver ("-": none) and its interface
#   run COMMAND...      undoes what was done

record_folder=/var/lib/gradwire/setup-host

# record KIND WORDS...
record() {
  if [[ ! -e $root$record_folder/record ]]; then
    # The folders above are removed with the record, if it was us that made them.
    local folder=$record_folder missing=()
    while [[ ! -d $root$folder ]]; do
      missing+=("$folder")
      folder=$(dirname "$folder")
    done
    mkdir -p "$root$record_folder"
    printf '%s\n' "${missing[@]}" >"$root$record_folder/folders"
  fi
  printf '%q ' "$@" >>"$root$record_folder/record"
  printf '\n' >>"$root$record_folder/record"
}

# record_copy PATH: keeps a copy of the file; its name is printed.
record_copy() {
  local copies=$root$record_folder/copies name number=0
  record_started
  mkdir -p "$copies"
  while name=$number.$(basename "$1") && [[ -e $copies/$name ]]; do number=$((number + 1)); done
  cp -p "$root$1" "$copies/$name"
  printf '%s' "$name"
}

# record_started: the record's folder is there, though nothing may be in it.
record_started() { [[ -e $root$record_folder/record ]] || record note started; }

# record_driver ADDRESS: the driver that the NIC had before the first change of it; fails without.
record_driver() {
  local line words
  [[ -r $root$record_folder/record ]] || return 1
  while IFS= read -r line; do
    eval "words=($line)"
    if [[ ${words[0]} == bind && ${words[1]} == "$1" && ${words[2]} != - ]]; then
      printf '%s' "${words[2]}"
      return 0
    fi
  done <"$root$record_folder/record"
  return 1
}

# record_address INTERFACE: the NIC that had this interface before it was bound; fails without.
record_address() {
  local line words
  [[ -r $root$record_folder/record ]] || return 1
  while IFS= read -r line; do
    eval "words=($line)"
    if [[ ${words[0]} == bind && ${words[4]} == "$1" ]]; then
      printf '%s' "${words[1]}"
      return 0
    fi
  done <"$root$record_folder/record"
  return 1
}

record_undo() {
  local lines=() i words failed=0 boot=0
  if [[ ! -r $root$record_folder/record ]]; then
    printf 'nothing to undo: there is no record at %s\n' "$record_folder/record"
    return 0
  fi
  mapfile -t lines <"$root$record_folder/record"
  for ((i = ${#lines[@]} - 1; i >= 0; i--)); do
    # Written by record() with %q, in a folder that only root writes to.
    eval "words=(${lines[i]})"
    [[ ${words[0]} != file || ${words[1]} != "$boot_file" ]] || boot=1
    undo_one "${words[@]}" || {
      printf 'error: not undone: %s\n' "${lines[i]}" >&2
      failed=1
    }
  done
  ((dry_run)) && return 0
  ((!boot)) || boot_update_grub
  if ((failed)); then
    die "some changes were not undone; the record stays at $record_folder/record." \
      "Mend what is named above and run --undo again."
  fi
  local folder folders=()
  mapfile -t folders <"$root$record_folder/folders"
  (cd "$root$record_folder" && rm -rf record copies folders)
  for folder in "${folders[@]}"; do
    [[ -z $folder ]] || rmdir "$root$folder" 2>/dev/null || true
  done
  printf 'all undone\n'
}

# undo_one KIND WORDS...: one line of the record.
undo_one() {
  local kind=$1
  shift
  case $kind in
    note) ;;
    value)
      [[ -e $root$1 ]] || return 0  # its device is gone, and the value with it
      [[ $(read_value "$1") != "$2" ]] || return 0
      say "write $2 back to $1"
      ((dry_run)) || write_value "$1" "$2"
      ;;
    file)
      if [[ $2 == - ]]; then
        [[ -e $root$1 || -L $root$1 ]] || return 0
        say "remove $1"
        ((dry_run)) || rm -f "$root$1"
      else
        say "put $1 back"
        ((dry_run)) || cp -p "$root$record_folder/copies/$2" "$root$1"
      fi
      ;;
    folder)
      [[ -d $root$1 ]] || return 0
      # Somebody else may have put something there meanwhile.
      ((dry_run)) || rmdir "$root$1" 2>/dev/null || printf '%s stays: not empty\n' "$1"
      ;;
    mount)
      mount_is_there "$1" || return 0
      say "run: umount $1"
      ((dry_run)) || umount "$root$1"
      ;;
    bind) undo_bind "$@" ;;
    run)
      say "run: $*"
      ((dry_run)) || "$@"
      ;;
    *) return 1 ;;
  esac
}
