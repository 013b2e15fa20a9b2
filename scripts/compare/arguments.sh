# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# The arguments of scripts/compare.sh, checked before anything is changed. Sets run_rows, plans (of
# each size, its iterations), hugepages_wanted, every_rank (0 to nranks - 1), core (of each rank),
# shared (1 if ranks share cores).

all_rows=(gradwire gradwire-1408 daemon bare tcp tcp-uring rdma gloo mpi-tcp mpi-tcp-ring mpi-shm)
# What runs only if it is named.
more_rows=(daemon-authenticate daemon-encrypt gradwire-authenticate gradwire-encrypt tls)

# bytes_of SIZE: with K, M, G as powers of 1024.
bytes_of() {
  [[ $1 =~ ^([1-9][0-9]{0,11})([KMG]?)$ ]] || return 1
  local bytes=${BASH_REMATCH[1]}
  case ${BASH_REMATCH[2]} in
    K) bytes=$((bytes << 10)) ;;
    M) bytes=$((bytes << 20)) ;;
    G) bytes=$((bytes << 30)) ;;
  esac
  ((bytes % 4 == 0 && bytes <= 1 << 33)) && printf '%s' "$bytes"
}

# iterations_of BYTES: the same for all rows, so many that each size takes about as long.
iterations_of() {
  local n
  if (($1 <= 4096)); then n=4000
  elif (($1 <= 128 << 10)); then n=1000
  elif (($1 <= 2 << 20)); then n=200
  elif (($1 <= 32 << 20)); then n=20
  elif (($1 <= 128 << 20)); then n=8
  else n=4; fi
  ((!quick)) || n=$((n / 4 > 2 ? n / 4 : 2))
  printf '%s' "$n"
}

# pair NAME VALUE PATTERN: two, separated by a comma.
pair() {
  [[ $2 =~ ^($3),($3)$ ]] ||
    die "$1 is '$2': must be two values, separated by a comma, rank 0's first."
}

all_collectives=(all-reduce reduce-scatter all-gather broadcast reduce all-to-all send-recv)

check_collective() {
  [[ " ${all_collectives[*]} " == *" $collective "* ]] ||
    die "--collective is '$collective': these are possible: ${all_collectives[*]}."
  [[ $collective == all-reduce ]] && return
  [[ -z $beside ]] || die "--beside is of all-reduce, not of $collective."
  # The others do all-reduce alone.
  rows=${rows:-daemon,gloo,mpi-tcp,mpi-shm}
  local row
  for row in ${rows//,/ }; do
    [[ $row =~ ^(daemon(-authenticate|-encrypt)?|gloo|mpi-tcp|mpi-shm)$ ]] ||
      die "--rows has '$row': with --collective $collective daemon, gloo, mpi-tcp and mpi-shm" \
        "are possible."
  done
}

check_arguments() {
  [[ $link =~ ^(memif|veth)$ ]] || die "--link is '$link': memif and veth are possible."
  [[ -n $reps ]] || reps=$((quick ? 2 : 5))
  [[ $reps =~ ^[1-9][0-9]?$ || $reps == 100 ]] || die "--reps is '$reps': 1 to 100 are possible."
  [[ -z $rate || $rate =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--rate is '$rate': Gbit/s, as in 100."
  check_ranks
  check_hosts
  check_shaped
  check_collective
  if [[ -n $beside ]]; then
    [[ $beside == busy ]] || die "--beside is '$beside': busy is possible."
    [[ $link == memif ]] || die "--beside is of --link memif: its rows need no cores of their own."
    sizes=${sizes:-64,64K,1M,16M}
    rows=${rows:-gradwire,daemon,tcp,tcp-uring}
  fi
  ((nranks == 2)) || sizes=${sizes:-64,8K,64K,1M}
  sizes=${sizes:-64,1K,64K,1M,16M,64M,256M}
  local size bytes
  plans=()
  largest_bytes=64
  for size in ${sizes//,/ }; do
    bytes=$(bytes_of "$size") ||
      die "--sizes has '$size': sizes such as 64, 16M and 1G are possible, multiples of 4 to 8G."
    plans+=("$bytes:$(iterations_of "$bytes")")
    ((bytes <= largest_bytes)) || largest_bytes=$bytes
  done
  ((${#plans[@]} > 0)) || die "--sizes is empty."
  # Input and output of each rank, and what lanes and daemons take.
  hugepages_wanted=$((nranks * (2 * largest_bytes / (2 << 20) + 120)))
  check_cores
  check_rows
  if [[ -z $mtu ]]; then
    mtu=9000
    [[ $link != veth ]] || mtu=1500
  fi
  [[ $mtu =~ ^[0-9]{3,5}$ ]] && ((mtu >= 1280 && mtu <= 9100)) ||
    die "--mtu is '$mtu': 1280 to 9100 are possible."
  # An af_xdp frame lies in one page, with its headroom.
  if [[ $link == veth && -z $shaped ]] && ((mtu > 3400)); then
    die "--mtu is $mtu: af_xdp on veth carries at most 3400."
  fi
}

check_ranks() {
  [[ $nranks =~ ^[2-8]$ ]] || die "--ranks is '$nranks': 2 to 8 are possible."
  mapfile -t every_rank < <(seq 0 $((nranks - 1)))
  ((nranks == 2)) && return
  [[ -z $hosts && -z $beside && $link == veth ]] ||
    die "--ranks is $nranks: more than two ranks are possible with --link veth alone, without" \
      "--hosts and --beside."
}

check_shaped() {
  [[ -n $shaped ]] || return 0
  shaped_gbit_check --shaped "$shaped"
  [[ $link == veth ]] && ((nranks == 2)) || die "--shaped is of --link veth and of two ranks."
  sizes=${sizes:-64,64K,1M,16M,64M}
  rate=${rate:-$shaped}
}

check_hosts() {
  if [[ -z $hosts ]]; then
    [[ -z $ports && -z $addresses ]] || die "--ports and --addresses are of --hosts."
    return
  fi
  [[ -n $ports && -n $addresses ]] ||
    die "--hosts needs --ports and --addresses." \
      "Example: --hosts h0,h1 --ports 0000:3b:00.0,0000:3b:00.0 --addresses 10.0.0.1,10.0.0.2"
  pair --hosts "$hosts" '[A-Za-z0-9_.@:-]+'
  pair --ports "$ports" '[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]'
  pair --addresses "$addresses" '[0-9a-fA-F.:]+'
  pair --lane-ips "$lane_ips" '[0-9a-fA-F.:]+/[0-9]+'
  # Open MPI picks its interfaces by network: both addresses are of one, of 24 bits if IPv4.
  tcp_prefix=${addresses%,*}
  tcp_prefix=${tcp_prefix%.*}.0/24
  [[ $addresses =~ ^[0-9.,]+$ ]] || die "--addresses is '$addresses': IPv4 addresses are possible."
  ssh=${GRADWIRE_SSH:-ssh}
  host=("${hosts%,*}" "${hosts#*,}")
  local one
  for one in "${host[@]}"; do
    "$ssh" -o BatchMode=yes -o ConnectTimeout=10 "$one" \
      "test -x $(printf '%q' "$build/app/gradwire-perf/gradwire-perf")" ||
      die "--hosts: $one does not answer by ssh without a password, or has no program" \
        "$build/app/gradwire-perf/gradwire-perf: the tree has to be there, built, at the same path."
  done
  link=hosts
}

check_cores() {
  local list given i
  read -ra list <<<"$(allowed_core_list)"
  if [[ -z $cores ]]; then
    ((${#list[@]} >= 2)) ||
      die "this process may run on CPU ${list[0]} only: two ranks need a core each."
    ((nranks == 2 || nranks > ${#list[@]})) || list=("${list[@]:0:nranks}")
    cores=$(IFS=, && printf '%s' "${list[*]}")
    ((nranks > 2)) || cores=${list[0]},${list[1]}
  fi
  if ((nranks == 2)); then pair --cores "$cores" '[0-9]+'; fi
  [[ $cores =~ ^[0-9]+(,[0-9]+)+$ ]] || die "--cores is '$cores': numbers, separated by commas."
  IFS=, read -ra given <<<"$cores"
  for i in "${every_rank[@]}"; do core[i]=${given[i % ${#given[@]}]}; done
  [[ ${core[0]} != "${core[1]}" || $link == hosts ]] || die "--cores is '$cores': a core each."
  shared=0
  [[ $link == hosts ]] || ((nranks == $(printf '%s\n' "${core[@]}" | sort -u | wc -l))) || shared=1
  # A daemon's lane has a core of its own if there are twice as many as ranks; else it shares its
  # client's.
  daemon_core=("${core[@]}")
  daemon_polling=adaptive
  local others=()
  read -ra list <<<"$(allowed_core_list)"
  for i in "${list[@]}"; do
    [[ " ${core[*]} " == *" $i "* ]] || others+=("$i")
  done
  if ((${#others[@]} >= nranks && !shared)) && [[ -z $beside ]]; then
    daemon_core=("${others[@]:0:nranks}")
    daemon_polling=busy
  fi
}

# allowed_core_list: numbers of the CPUs that this script may run on.
allowed_core_list() {
  local part list=()
  for part in $(awk '/^Cpus_allowed_list:/ {gsub(",", " ", $2); print $2}' /proc/self/status); do
    if [[ $part == *-* ]]; then
      mapfile -t -O ${#list[@]} list < <(seq "${part%-*}" "${part#*-}")
    else
      list+=("$part")
    fi
  done
  printf '%s ' "${list[@]}"
}

check_rows() {
  local row known=" ${all_rows[*]} ${more_rows[*]} "
  run_rows=()
  for row in ${rows:+${rows//,/ }}; do
    [[ $known == *" $row "* ]] || die "--rows has '$row': of$known"
    run_rows+=("$row")
  done
  ((${#run_rows[@]} > 0)) || run_rows=("${all_rows[@]}")
  # One machine's memif and veth carry no RDMA.
  [[ $link == hosts ]] || mapfile -t run_rows < <(printf '%s\n' "${run_rows[@]}" | grep -vx rdma)
  # Between namespaces or hosts no memory is shared, and frames are lost; 1,408-byte payloads are
  # the veth's own.
  [[ $link == memif ]] || mapfile -t run_rows < <(
    for row in "${run_rows[@]}"; do
      [[ $row == mpi-shm || $row == gradwire-1408 || $row == bare ]] || printf '%s\n' "$row"
    done
  )
  ((${#run_rows[@]} > 0)) || die "--rows leaves nothing to run over $link."
}
