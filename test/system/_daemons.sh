# SPDX-License-Identifier: BSD-3-Clause
# Shared by the stories of test/system: starts and stops daemons that are joined by memif, each with
# files of its own under $DIR, and ends whatever is left when the story ends.
# Usage: . "$(dirname "$0")/_daemons.sh"; $1 is the built gradwired, $2 the built rank_client.
set -u

GRADWIRED=$1
RANK_CLIENT=$2
DIR=$(mktemp -d /tmp/gradwire-system-XXXXXX)
declare -A DAEMON=()

finish() {
  local status=$?
  trap - EXIT
  for pid in "${DAEMON[@]}"; do kill -KILL "$pid" 2>/dev/null; done
  wait 2>/dev/null
  if [ $status -ne 0 ] && [ $status -ne 77 ]; then
    for log in "$DIR"/*.log; do
      echo "--- $log"
      cat "$log"
    done
  fi
  rm -rf "$DIR"
  exit $status
}
trap finish EXIT

fail() {
  echo "FAILED: $*"
  exit 1
}

# need_hugepages COUNT
need_hugepages() {
  local free
  free=$(cat /sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages 2>/dev/null || echo 0)
  if [ "$free" -lt "$1" ] || [ "$(id -u)" -ne 0 ]; then
    echo "skipped: needs root and $1 free hugepages of 2 MiB, $free are free"
    exit 77
  fi
}

# launch N ROLE [gradwire options]: daemon N in the background; its log is $DIR/N.log.
launch() {
  local n=$1 role=$2
  shift 2
  local link="net_memif0,role=$role,id=0,socket=$DIR/memif.sock,socket-abstract=no,bsize=9216"
  : >"$DIR/$n.log"  # an earlier daemon's would say that this one is ready
  # Threads float: a test machine may have no more than two cores for all of them.
  "$GRADWIRED" --lcores '0@(0-1),1@(0-1)' --file-prefix "$(basename "$DIR")-$n" --no-pci -m 128 \
    --no-telemetry --vdev "$link,mac=02:00:00:00:00:0$((n + 1))" \
    -- --daemon.name "gw$n" --daemon.control_socket "$DIR/$n.sock" --port.device net_memif0 \
    --port.ip "10.77.0.$((n + 1))/24" --port.mtu 9000 --timeouts.drain_ms 200 "$@" \
    >>"$DIR/$n.log" 2>&1 &
  DAEMON[$n]=$!
}

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -ge $end ] && return 1
    sleep 0.05
  done
}

is_ready() { grep -q '^gradwired ready:' "$DIR/$1.log"; }
is_gone() { ! kill -0 "${DAEMON[$1]}" 2>/dev/null; }

# ready N
ready() { wait_for 20 is_ready "$1" || fail "daemon $1 is not ready"; }

# stop N SIGNAL: gives the exit status.
stop() {
  kill "-$2" "${DAEMON[$1]}"
  wait_for 20 is_gone "$1" || fail "daemon $1 does not stop"
  wait "${DAEMON[$1]}"
  local status=$?
  unset "DAEMON[$1]"
  return $status
}
