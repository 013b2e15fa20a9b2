#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The first ten minutes of a stranger: both commands of the README, in a fresh clone, on a root that
# has nothing but Debian's smallest system.
. "$(dirname "$0")/lib/setup.sh"
. "$repo_root/scripts/lib/last_run.sh"
. "$repo_root/scripts/vm/image.sh"

usage() {
  cat <<TEXT
scripts/newcomer-test.sh [--release NAME] [--commands LIST] [--cache FOLDER]

Creates a minimal Debian root by debootstrap, clones this tree's last commit into a path with
a space below its /tmp, and runs the commands of the README there: scripts/demo.sh, then
scripts/test.sh. The root has its own /proc, /sys, /dev and /run and no hugetlbfs; it uses network,
kernel and hugepages of this machine. Passes if both commands pass, tests are skipped only if they
need missing hardware, and nothing is left behind. Takes about 25 minutes on two cores, mostly
compiling and testing, and 6 GB of disk. Run it as root.

  --release NAME   bookworm, trixie, forky: which Debian; default this machine's own
  --commands LIST  comma-separated list of demo,test; default both. fast is scripts/test.sh with
                   suite fast alone
  --cache FOLDER   where to keep the minimal root, which is created once; default build/newcomer
  --keep           keep the root, with the clone and its logs, in FOLDER/root
  --no-setup       do not install debootstrap
  --help           this text

Exit status: 77 if the mirror that this machine takes Debian from does not answer for the release.
TEXT
}

release=$(debian_codename)
commands=demo,test vm_folder=$repo_root/build/newcomer keep=0 setup=1
while (($# > 0)); do
  case $1 in
    --release) release=${2:?--release needs a value} && shift ;;
    --commands) commands=${2:?--commands needs a value} && shift ;;
    --cache) vm_folder=${2:?--cache needs a value} && shift ;;
    --keep) keep=1 ;;
    --no-setup) setup=0 ;;
    --help) usage && exit 0 ;;
    *) usage >&2 && die "unknown option '$1'." ;;
  esac
  shift
done
vm_cannot() { die "$@"; }

need_root
if ((setup)); then
  need_debian
  install_packages newcomer
fi
mkdir -p "$vm_folder"
vm_folder=$(realpath "$vm_folder")
if ! vm_archive_has "$release"; then
  note "skipped: no mirror answers for Debian's $release:" \
    "$(grep -m1 '^E:' "$vm_folder/mirror.log" || tail -n 1 "$vm_folder/mirror.log")"
  exit 77
fi
root=$vm_folder/root
rm -rf --one-file-system "$root"
vm_base_root "$root" "$release"
((keep)) || on_exit rm -rf --one-file-system "$root"
# Files that an installed system has, but that debootstrap leaves to the installer.
cp -L /etc/hosts /etc/hostname "$root/etc/"
chmod 1777 "$root/tmp"

clone="/tmp/a new clone/gradwire"
mkdir -p "$root/tmp/a new clone"
git clone -q --no-local "$repo_root" "$root$clone"
step "$release: a clone of $(git -C "$repo_root" log -1 --format='%h, %s')"
[[ -z $(git -C "$repo_root" status --porcelain) ]] || note "without what is not committed here"

# inside COMMAND...: in the root, in namespaces of its own for mounts and processes, which end with
# it. The root is a mount, since "ip netns exec" changes how "/" passes mounts on.
inside() {
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child --propagation private bash -euc '
    root=$1
    shift
    mount --bind "$root" "$root"
    cd "$root"
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    for kind in tracefs:sys/kernel/tracing debugfs:sys/kernel/debug bpf:sys/fs/bpf; do
      mount -t "${kind%%:*}" none "${kind#*:}" 2>/dev/null || true
    done
    mount -t tmpfs -o mode=755 none dev
    mkdir -p dev/pts dev/shm
    for device in null zero full random urandom tty; do
      touch "dev/$device"
      mount --bind "/dev/$device" "dev/$device"
    done
    mount -t devpts -o newinstance,ptmxmode=0666 none dev/pts
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    for i in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${i%:*}" "dev/${i#*:}"; done
    mount -t tmpfs -o mode=1777 none dev/shm
    mount -t tmpfs -o mode=755 none run
    exec chroot . env -i HOME=/root TERM=dumb PATH=/usr/sbin:/usr/bin:/sbin:/bin \
      ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
      ${no_proxy:+"no_proxy=$no_proxy"} "$@"' bash "$root" "$@" </dev/null
}

# as_newcomer NAME COMMAND...: runs it in the clone, and says how long it took.
as_newcomer() {
  local name=$1 began=$SECONDS status=0
  shift
  step "$* in $clone"
  # shellcheck disable=SC2016
  inside bash -c 'cd "$1" && shift && exec "$@"' bash "$clone" "$@" >"$vm_folder/$name.log" 2>&1 &
  local pid=$!
  on_exit end_process "$pid"
  # Not in the foreground: a script that is told to end would wait for it.
  tail -n +1 -f --pid="$pid" "$vm_folder/$name.log" | sed -u 's/^/       /' &
  local shown=$!
  wait "$pid" || status=$?
  wait "$shown" || true
  rm -f "$vm_folder"/suite-*.json
  cp "$root$clone"/build/meson-logs/suite-*.json "$vm_folder/" 2>/dev/null || true
  ((status == 0)) || die "$* ends with status $status; its output is in $vm_folder/$name.log."
  step "$* took $(((SECONDS - began) / 60)) min $(((SECONDS - began) % 60)) s"
}

pages_before=$(hugepages_read nr_hugepages)
for name in ${commands//,/ }; do
  case $name in
    demo)
      as_newcomer demo scripts/demo.sh
      grep -q 'bit-equal' "$vm_folder/demo.log" || die "the demo does not compare weights."
      [[ -s $root$clone/build/demo.png ]] || die "the demo leaves no plot."
      ;;
    test | fast)
      arguments=()
      [[ $name == test ]] || arguments=(--suites fast --needed)
      as_newcomer "$name" scripts/test.sh "${arguments[@]}"
      # A test may be skipped for want of a kernel's or a CPU's feature, but not of a package; later
      # releases than bookworm have no clang-format of the version that the sources are written by.
      fine='GPU|this (kernel|CPU)'
      # Nor does every mirror have the source packages of later ones.
      [[ $release == bookworm ]] ||
        fine+="|there is no clang-format-14|DPDK's driver headers were not to be had"
      if grep '^skipped: ' "$vm_folder/$name.log" | grep -vE "$fine"; then
        die "tests were skipped that need no hardware."
      fi
      ;;
    *) die "--commands: '$name' is neither demo nor test nor fast." ;;
  esac
done
[[ $(hugepages_read nr_hugepages) == "$pages_before" ]] ||
  die "$(hugepages_read nr_hugepages) hugepages are reserved, and $pages_before were before."
[[ ! -e $root/usr/sbin/policy-rc.d ]] || die "the root's services are still held back."
! ls "$root"/etc/systemd/system/*/prometheus.service 2>/dev/null ||
  die "prometheus would start at boot."
step "passed: ${commands//,/ and } on a bare root of $release"
[[ $commands != demo,test ]] || last_run_write newcomer "both commands on a bare root of $release"
[[ $commands != fast || $release != trixie ]] || last_run_write trixie "suite fast on a bare root"
