# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Starts daemons on this machine and joins them by memif links, for the demo and the system tests.
# Needs setup.sh, and: gradwired (the program), run_dir (a folder of the caller's, run_dir_make), or
# daemons_prepare, which sets both.

daemon_pids=()     # by index
daemon_netns=()    # by index; empty: the host's
daemon_eal=()      # EAL arguments of every daemon that starts from here on
daemon_lcores=()   # by index; empty: one more than lanes, which float over all CPUs
daemon_memory_mib=${daemon_memory_mib:-160}
daemon_huge=--huge-unlink  # or --huge-unlink=existing, where dpdk-dumpcap shall attach
daemon_telemetry=${daemon_telemetry:---no-telemetry}
daemon_lanes=${daemon_lanes:-1}  # of each; a memif link should have as many at both ends
memif_rails=${memif_rails:-1}    # links between two daemons

# daemons_prepare BUILD PAGES: as root, so many hugepages for the daemon of that build folder, and a
# folder for what it writes.
daemons_prepare() {
  need_root
  reserve_hugepages "$2"
  mount_hugetlbfs
  gradwired=$1/app/gradwired/gradwired
  run_dir_make
}

daemon_socket() { printf '%s/gw%s.sock' "$run_dir" "$1"; }
daemon_log() { printf '%s/gw%s.log' "$run_dir" "$1"; }
daemon_config() { printf '%s/gw%s.toml' "$run_dir" "$1"; }

# allowed_cpus: the CPUs that this script may run on, as in 0-3,6.
allowed_cpus() { awk '/^Cpus_allowed_list:/ {print $2}' /proc/self/status; }

# daemon_pin_lanes COUNT: each lane of the next COUNT daemons has a CPU, in turn, which it shares
# with whatever else runs here. Lanes that float may meet on one CPU, and all trainers on the other.
daemon_pin_lanes() {
  local list cpus=() range i lane at=0
  list=$(allowed_cpus)
  for range in ${list//,/ }; do
    for ((i = ${range%-*}; i <= ${range#*-}; i++)); do cpus+=("$i"); done
  done
  for ((i = 0; i < $1; i++)); do
    daemon_lcores[i]="0@($list)"
    for ((lane = 1; lane <= daemon_lanes; lane++)); do
      daemon_lcores[i]+=",$lane@${cpus[at++ % ${#cpus[@]}]}"
    done
  done
}

# daemon_write_config INDEX DEVICE=IP/PREFIX[,MTU[,GBPS]]...: a configuration with these ports.
# Lanes share their cores with everything else here, so they are polled adaptively.
daemon_write_config() {
  local index=$1 port device ip mtu gbps
  shift
  {
    printf '# SPDX-License-Identifier: BSD-3-Clause\n[daemon]\nname = "gw%s-%s"\n' "$$" "$index"
    printf 'control_socket = "%s"\nsocket_mode = "0600"\n' "$(daemon_socket "$index")"
    for port in "$@"; do
      device=${port%%=*}
      IFS=, read -r ip mtu gbps <<<"${port#*=}"
      printf '\n[[port]]\ndevice = "%s"\nip = "%s"\n' "$device" "$ip"
      [[ -z $mtu ]] || printf 'mtu = %s\n' "$mtu"
      [[ -z $gbps ]] || printf 'rate_gbps = %s\n' "$gbps"
    done
    printf '\n[lanes]\ncount = %s\npolling = "adaptive"\n' "$daemon_lanes"
    # Each has packet buffers: these many fit in $daemon_memory_mib.
    printf '\n[limits]\ngroups = 16\n'
  } >"$(daemon_config "$index")"
}

# daemon_start INDEX EAL_ARGUMENT... [-- FLAG...]: starts it with the configuration that was written
# for it; its lcores are not pinned, since there are fewer CPUs here than threads.
daemon_start() {
  local index=$1 cpus lcores lane prefix=()
  shift
  local eal=()
  while (($# > 0)) && [[ $1 != -- ]]; do
    eal+=("$1")
    shift
  done
  (($# == 0)) || shift
  cpus=$(allowed_cpus)
  lcores="0@($cpus)"
  for ((lane = 1; lane <= daemon_lanes; lane++)); do lcores+=",$lane@($cpus)"; done
  [[ -z ${daemon_netns[index]:-} ]] || prefix=(ip netns exec "${daemon_netns[index]}")
  # Removes an earlier daemon's log, which would say that this one is ready.
  : >"$(daemon_log "$index")"
  # A session of its own: the terminal's Ctrl-C is for this script, which then ends the daemon.
  setsid "${prefix[@]}" "$gradwired" --lcores "${daemon_lcores[index]:-$lcores}" \
    --file-prefix "gw$$-$index" \
    --no-pci "$daemon_telemetry" "$daemon_huge" -m "$daemon_memory_mib" \
    "${daemon_eal[@]}" "${eal[@]}" \
    -- --config "$(daemon_config "$index")" "$@" >"$(daemon_log "$index")" 2>&1 </dev/null &
  daemon_pids[index]=$!
  on_exit daemon_end "$index" "${daemon_pids[index]}"
}

# daemon_alive INDEX
daemon_alive() {
  local state
  state=$(process_state "${daemon_pids[$1]}")
  [[ -n $state && $state != Z ]]
}

# daemon_wait_ready INDEX [SECONDS]: until it says that it is ready, for so long, which is
# $timeout_multiplier times as long with sanitizers. Fails if it ends before.
daemon_wait_ready() {
  local index=$1 tries=$((${2:-20} * ${timeout_multiplier:-1} * 20))
  while ((tries-- > 0)); do
    grep -q 'gradwired ready' "$(daemon_log "$index")" 2>/dev/null && return 0
    daemon_alive "$index" || break
    sleep 0.05
  done
  printf 'daemon %s is not ready; the end of its log:\n' "$index" >&2
  tail -n 20 "$(daemon_log "$index")" >&2
  return 1
}

# daemon_end INDEX PID: leaves no process and no files of the EAL's.
daemon_end() {
  end_process "$2" 10
  rm -rf "/run/dpdk/gw$$-$1" /dev/hugepages/"gw$$-$1"map_*
}

# memif_ring_start RANKS [FLAG...]: RANKS daemons with index 0 ... RANKS-1. Two share memif_rails
# links; more have as many from each to the next, so twice as many ports each; one has links that
# nobody serves.
memif_ring_start() {
  local ranks=$1 i
  shift
  for ((i = 0; i < ranks; i++)); do memif_rank_start "$i" "$ranks" "$@" || return 1; done
  for ((i = 0; i < ranks; i++)); do daemon_wait_ready "$i" || return 1; done
}

# memif_rank_start INDEX RANKS [FLAG...]: one daemon of that ring; also after it has ended. Of each
# link the lower index is the server.
memif_rank_start() {
  local i=$1 ranks=$2 rail ports=() vdevs=()
  shift 2
  if ((ranks <= 2)); then
    for ((rail = 0; rail < memif_rails; rail++)); do
      memif_end "$rail" "$rail" "$i" "$i" || return 1
    done
  else
    # To the next, then to the one before; link L joins L and L+1, the last link closes the ring.
    for ((rail = 0; rail < memif_rails; rail++)); do
      memif_end $((2 * rail)) $((rail * ranks + i)) 0 $((i == ranks - 1)) || return 1
      memif_end $((2 * rail + 1)) $((rail * ranks + (i + ranks - 1) % ranks)) 1 $((i != 0)) ||
        return 1
    done
  fi
  daemon_write_config "$i" "${ports[@]}"
  daemon_start "$i" "${vdevs[@]}" -- "$@"
}

# memif_end DEVICE_NUMBER LINK SIDE IS_CLIENT: adds one end to the caller's ports and vdevs. SIDE 0
# has address 10.77.LINK.1, side 1 .2.
memif_end() {
  local role=server
  ((!$4)) || role=client
  ports+=("net_memif$1=10.77.$2.$(($3 + 1))/24,9000")
  vdevs+=(--vdev "$(memif_vdev "$1" "$role" "$2" "$3")")
}

# free_tcp_port [COMMAND...]: prints a TCP port of 127.0.0.1 that nobody listens on, for a job's
# rendezvous; COMMAND runs a program where the job will run.
free_tcp_port() {
  "$@" "$python" -c '
import socket
s = socket.socket()
s.bind(("127.0.0.1", 0))
print(s.getsockname()[1])'
}

# memif_vdev DEVICE_NUMBER server|client LINK [SIDE]
memif_vdev() {
  # 2^7 slots: with the default of 2^10 every packet passes through memory instead of the cache.
  local format='net_memif%d,role=%s,id=0,socket=%s/link%d.sock,socket-abstract=no'
  # shellcheck disable=SC2059
  printf "$format,bsize=9216,rsize=7,mac=%s" \
    "$1" "$2" "$run_dir" "$3" "$(printf '02:00:00:00:%02x:%02x' "$3" $((${4:-0} + 1)))"
}
