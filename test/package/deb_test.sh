#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The Debian package on a bare root: it installs with what it depends on, its programs run, an
# upgrade keeps the configuration, and a purge leaves nothing. Where systemd runs it is
# scripts/vm-test.sh --stories package that shows how it starts.
. "$(dirname "$0")/../../scripts/lib/setup.sh"
. "$repo_root/scripts/vm/image.sh"
vm_cannot() {
  printf 'skipped: %s\n' "$*"
  exit 77
}
((EUID == 0)) || vm_cannot "a root of its own needs root"
for program in debootstrap dpkg-deb dpkg-shlibdeps; do
  command -v "$program" >/dev/null || vm_cannot "there is no $program here"
done
vm_folder=${GRADWIRE_VM_CACHE:-$repo_root/build/vm}
mkdir -p "$vm_folder"
run_dir_make
# A folder of its own unless the caller has one that is built.
build=${GRADWIRE_DEB_BUILD:-$repo_root/build-deb}
for revision in 1 2; do
  "$repo_root/scripts/build-deb.sh" --no-setup --build "$build" --output "$run_dir" \
    --revision $revision
done
old=$(echo "$run_dir"/gradwire_*-1_amd64.deb) new=$(echo "$run_dir"/gradwire_*-2_amd64.deb)

root=$run_dir/root log=$run_dir/log
vm_base_root "$root"
chroot "$root" apt-get update >"$log" 2>&1 || vm_cannot "the root's package lists do not come"
inside() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }
check() {
  local what=$1
  shift
  "$@" >"$log" 2>&1 || { tail -n 20 "$log" && die "$what: '$*' failed."; }
  step "$what"
}
files() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./var/cache -o -path ./var/log \
    -o -path ./var/lib/apt -o -path ./var/lib/dpkg -o -path ./tmp \) -prune -o -print | sort)
}
cp "$old" "$new" "$root/tmp/"
# What it depends on first, so that what a purge leaves of ours shows.
mapfile -t depends < <(dpkg-deb -f "$old" Depends | tr ',' '\n' | sed 's/|.*//; s/(.*//; s/ //g')
check "its dependencies are Debian's" inside apt-get -y install --no-install-recommends \
  "${depends[@]}"
files >"$run_dir/before"
check "installs" inside dpkg -i "/tmp/$(basename "$old")"
check "the daemon runs" inside gradwired --version
check "the CLI runs" inside gradwire --help
check "the bench runs" inside gradwire-perf --help
check "the user is there" inside getent passwd gradwire
check "the host script runs" inside gradwire-setup-host --help
check "the unit is there" test -e "$root/usr/lib/systemd/system/gradwired.service"
check "the example is a configuration" inside gradwired --check --config \
  /etc/gradwire/gradwired.toml.example
echo '# ours' >>"$root/etc/default/gradwired"
check "upgrades" inside dpkg -i "/tmp/$(basename "$new")"
check "the configuration is kept" grep -qx '# ours' "$root/etc/default/gradwired"
check "the new version is there" inside sh -c 'dpkg-query -W gradwire | grep -q -- -2'
check "removes" inside dpkg -r gradwire
[[ ! -e $root/usr/bin/gradwired && -e $root/etc/default/gradwired ]] ||
  die "removal left the daemon, or took the configuration."
check "purges" inside dpkg -P gradwire
files >"$run_dir/after"
# The user stays, as Debian has it: it may own files; and so do the account files' copies.
diff "$run_dir/before" "$run_dir/after" | grep -vE '^[0-9,acd]+$|/etc/(passwd|group|g?shadow)-$' \
  >"$log" && { cat "$log" && die "a purge leaves files, or took what was there."; }
step "a purge leaves nothing"
