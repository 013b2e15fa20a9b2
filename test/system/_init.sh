# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# What every story sources first. Meson runs a story with
#   GRADWIRED        the daemon
#   GRADWIRE_LIBRARY the client library
#   GRADWIRE_RANK_CLIENT, GRADWIRE_PERF, GRADWIRE_CLI  a client in C, the bench, the operator's tool
#   GRADWIRE_NCCL_NET, GRADWIRE_NCCL_PLAYER  the plug-in for NCCL, and a program that plays NCCL
#   GRADWIRE_SANITIZE the build's sanitizers, or none
# By hand: test/system/SUBJECT/STORY.sh, which takes them from build/ (or from $GRADWIRE_BUILD).
# A story that cannot run here skips: exit 77, its last line says why.

. "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib/setup.sh"

build_folder=${GRADWIRE_BUILD:-$repo_root/build}
gradwired=${GRADWIRED:-$build_folder/app/gradwired/gradwired}
rank_client=${GRADWIRE_RANK_CLIENT:-$build_folder/test/system/rank_client}
gradwire_cli=${GRADWIRE_CLI:-$build_folder/app/gradwire/gradwire}
small_pool=${GRADWIRE_SMALL_POOL:-$build_folder/test/system/libsmall_pool.so}
nccl_net=${GRADWIRE_NCCL_NET:-$build_folder/lib/nccl_net/libnccl-net-gradwire.so}
nccl_player=${GRADWIRE_NCCL_PLAYER:-$build_folder/test/nccl/nccl_player}
gradwire_perf=${GRADWIRE_PERF:-$build_folder/app/gradwire-perf/gradwire-perf}
export GRADWIRE_LIBRARY=${GRADWIRE_LIBRARY:-$build_folder/lib/client/libgradwire.so}
# The programs of stories.
programs=$repo_root/test/system/programs
hostile=$repo_root/test/system/hostile
# programs_of ROOT: where Python finds the client's library and the programs of stories.
programs_of() { echo "$1/python:$1/test:$1/test/system/programs:$1/test/system/hostile"; }
PYTHONPATH=$(programs_of "$repo_root")
export PYTHONPATH
export PYTHONDONTWRITEBYTECODE=1
export OMP_NUM_THREADS=1
export LC_ALL=C

. "$repo_root/scripts/lib/daemons.sh"
. "$repo_root/scripts/lib/sanitizers.sh"
# Under a sanitizer Python needs its runtime.
python=$repo_root/test/support/python.sh

skip() {
  printf 'skipped: %s\n' "$*"
  exit 77
}

# fail TEXT: the story ends here, with what the daemons said last.
fail() {
  local i
  printf 'FAILED: %s\n' "$*"
  for i in "${!daemon_pids[@]}"; do
    printf -- '--- end of the log of daemon %s\n' "$i"
    tail -n 30 "$(daemon_log "$i")" 2>/dev/null || true
  done
  printf 'FAILED: %s\n' "$*"
  exit 1
}
trap 'fail "line $LINENO of $(basename "$0"): $BASH_COMMAND"' ERR

# expect WHAT COMMAND...: the command succeeds.
expect() {
  local what=$1
  shift
  step "$what"
  "$@" || fail "$what"
}

# expect_text WHAT PATTERN FILE: a line of the file, which may be a pipe, matches the extended
# regular expression.
expect_text() {
  local text
  step "$1"
  text=$(tr -d '\0' <"$3")
  grep -aqE -- "$2" <<<"$text" || {
    printf -- '--- %s\n' "$3" && tail -n 20 <<<"$text"
    fail "$1: no line matches '$2'"
  }
}

# eventually SECONDS COMMAND...: tries until it succeeds.
eventually() {
  local tries=$(($1 * timeout_multiplier * 20))
  shift
  while ((tries-- > 0)); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.05
  done
  return 1
}

# within SECONDS COMMAND...: it is ended after so long, or four times as long with sanitizers.
within() { timeout $(($1 * timeout_multiplier)) "${@:2}"; }

# daemon_stop INDEX SIGNAL: sends it and waits until the daemon has left. Returns its exit status.
daemon_stop() {
  local pid=${daemon_pids[$1]} status=0
  kill "-$2" "$pid"
  eventually 20 daemon_gone "$1" || fail "daemon $1 does not leave after SIG$2"
  wait "$pid" 2>/dev/null || status=$?
  return "$status"
}
daemon_gone() { ! daemon_alive "$1"; }

# expect_stop INDEX SIGNAL: it leaves with status 0.
expect_stop() {
  local status=0
  daemon_stop "$1" "$2" || status=$?
  ((status == 0)) || fail "daemon $1 left with status $status after SIG$2"
}

# background NAME COMMAND...: a process of this story, its output in $run_dir/NAME.out, its process
# id in ${background[NAME]}.
declare -A background=()
background() {
  local name=$1
  shift
  "$@" >"$run_dir/$name.out" 2>&1 </dev/null &
  background[$name]=$!
  on_exit end_process $!
}

# ended NAME: waits for it and returns its exit status.
ended() {
  local status=0
  wait "${background[$1]}" || status=$?
  unset "background[$1]"
  return "$status"
}

# expect_ended WHAT NAME: it ends with status 0.
expect_ended() {
  step "$1"
  ended "$2" || { cat "$run_dir/$2.out" && fail "$1"; }
}

# as_nobody_make: "${as_nobody[@]}" COMMAND... runs a program of this tree as user 65534. It runs a
# copy, since that user may not be able to enter the clone's folder, and has its place as the
# process's, so that it can be in the background.
as_nobody=()
as_nobody_make() {
  local copy=$run_dir/nobody
  command -v setpriv >/dev/null || skip "there is no setpriv to become another user with"
  # Sockets have modes of their own.
  chmod 711 "$run_dir"
  mkdir -p "$copy/test/system" "$copy/test/support"
  cp -r "$repo_root/python" "$copy/"
  cp -r "$repo_root/test/reference" "$copy/test/"
  cp -r "$repo_root"/test/system/{programs,hostile} "$copy/test/system/"
  cp "$repo_root/test/support/python.sh" "$copy/test/support/"
  cp -L "$GRADWIRE_LIBRARY" "$copy/libgradwire.so"
  cp "$gradwire_cli" "$gradwire_perf" "$copy/"
  chmod -R a+rX "$copy"
  cat >"$copy/run" <<TEXT
#!/bin/bash
words=()
for word in "\$@"; do
  case \$word in
    $(printf '%q' "$gradwire_cli")) word=$copy/${gradwire_cli##*/} ;;
    $(printf '%q' "$gradwire_perf")) word=$copy/${gradwire_perf##*/} ;;
    $(printf '%q' "$repo_root")/*) word=$copy/\${word:$((${#repo_root} + 1))} ;;
  esac
  words+=("\$word")
done
export GRADWIRE_LIBRARY=$copy/libgradwire.so
export PYTHONPATH=$(programs_of "$copy")
cd /
exec setpriv --reuid=65534 --regid=65534 --clear-groups "\${words[@]}"
TEXT
  chmod 755 "$copy/run"
  as_nobody=("$copy/run")
}

# sockets RANKS: the daemons' sockets, in rank order, as arguments for the Python programs.
sockets() {
  local i
  for ((i = 0; i < $1; i++)); do daemon_socket "$i" && printf ' '; done
}

# A pair of namespaces of this story's own, joined by a veth: $netns_a and $netns_b, with the
# devices gwa and gwb.
make_namespaces() {
  local mtu=$1
  netns_a=gw$$a
  netns_b=gw$$b
  ip netns add "$netns_a" 2>/dev/null || skip "this kernel or container has no network namespaces"
  on_exit ip netns del "$netns_a"
  ip netns add "$netns_b"
  on_exit ip netns del "$netns_b"
  ip -n "$netns_a" link add gwa type veth peer name gwb netns "$netns_b" 2>/dev/null ||
    skip "this kernel has no veth devices"
  ip -n "$netns_a" link set gwa mtu "$mtu" up
  ip -n "$netns_b" link set gwb mtu "$mtu" up
  ip -n "$netns_a" link set lo up
  ip -n "$netns_b" link set lo up
}

((EUID == 0)) || skip "system stories need root, for hugepages and namespaces"
for program in "$gradwired" "$rank_client" "$gradwire_cli" "$gradwire_perf" "$GRADWIRE_LIBRARY"; do
  [[ -e $program ]] || die "there is no $program: ninja -C $build_folder builds it."
done
(($(hugepages_read free_hugepages) >= 64)) ||
  skip "$(hugepages_read free_hugepages) hugepages of 2 MB are free, 64 wanted"
set -E
run_dir_make
