# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Where the two ranks of scripts/compare.sh run, and what joins them. For each kind of link:
# link_up_KIND, and what rows.sh needs: at, tcp_address, mpi_placement, gradwire_eal, lane_port.

link_up_memif() {
  step "two ranks on cores $cores: memif for gradwire, loopback for TCP, MTU $mtu"
  tcp_address=(127.0.0.1 127.0.0.1)
  tcp_network=127.0.0.0/8
  gloo_device=(lo lo)
}

# Two namespaces joined by a veth, or more joined by a bridge.
link_up_veth() {
  local i
  for i in "${every_rank[@]}"; do
    compare_ns[i]=gwc$$-$i
    tcp_address[i]=10.79.1.$((i + 1))
    gloo_device[i]=gwv$i
    ip netns add "${compare_ns[i]}" || die "this kernel or container has no network namespaces."
    on_exit ip netns del "${compare_ns[i]}"
  done
  if ((nranks == 2)); then
    ip -n "${compare_ns[0]}" link add gwv0 type veth peer name gwv1 netns "${compare_ns[1]}" ||
      die "this kernel has no veth devices."
  else
    join_by_bridge "gwc$$-bridge"
  fi
  for i in "${every_rank[@]}"; do
    ip -n "${compare_ns[i]}" link set gwv$i mtu "$mtu" up
    ip -n "${compare_ns[i]}" link set lo up
    ip -n "${compare_ns[i]}" addr add "${tcp_address[i]}/24" dev gwv$i
    # No router's and no neighbor's talk while something is timed.
    ip netns exec "${compare_ns[i]}" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 || true
  done
  tcp_network=10.79.1.0/24
  daemon_netns=("${compare_ns[@]}")
  if [[ -n $shaped ]]; then
    for i in 0 1; do shape "$shaped" "${compare_ns[i]}" gwv$i; done
    blast=$(shaped_blast "${compare_ns[0]}" "${compare_ns[1]}" gwv1 "${tcp_address[1]}")
    step "two namespaces on cores $cores, joined by a veth of MTU $mtu and $shaped Gbit/s;" \
      "a UDP blast gets $blast through"
  elif ((nranks == 2)); then
    step "two namespaces on cores $cores, joined by a veth of MTU $mtu"
  else
    step "$nranks namespaces on cores $cores, joined by a bridge of MTU $mtu"
  fi
}

# join_by_bridge NAMESPACE: a bridge in it, and from it a veth to each rank's namespace.
join_by_bridge() {
  local i
  ip netns add "$1" || die "this kernel or container has no network namespaces."
  on_exit ip netns del "$1"
  ip -n "$1" link add bridge0 type bridge || die "this kernel has no bridges."
  for i in "${every_rank[@]}"; do
    ip -n "$1" link add "port$i" mtu "$mtu" type veth peer name gwv$i netns "${compare_ns[i]}" ||
      die "this kernel has no veth devices."
    ip -n "$1" link set "port$i" master bridge0 up
  done
  ip -n "$1" link set bridge0 up
  ip netns exec "$1" sysctl -qw net.ipv6.conf.all.disable_ipv6=1 || true
}

link_up_hosts() {
  local i
  tcp_address=("${addresses%,*}" "${addresses#*,}")
  tcp_network=$tcp_prefix
  for i in 0 1; do
    gloo_device[i]=$(on_host "$i" ip -o addr show to "${tcp_address[i]}" |
      awk 'NR == 1 {print $2}') || true
    [[ -n ${gloo_device[i]} ]] || die "${host[i]} has no device with address ${tcp_address[i]}."
    on_host "$i" mkdir -p "$run_dir"
    [[ -n ${GRADWIRE_KEEP_LOGS:-} ]] || on_exit on_host "$i" rm -rf "$run_dir"
  done
  step "two hosts, ${host[*]}: NICs $ports for gradwire, $addresses for TCP"
  leave_out_rdma
}

# leave_out_rdma: the row rdma goes, with its reason, where a host has no RDMA device.
leave_out_rdma() {
  local i row rows=()
  [[ " ${run_rows[*]} " == *' rdma '* ]] || return 0
  for i in 0 1; do
    on_host "$i" sh -c 'ls /sys/class/infiniband 2>/dev/null | grep -q .' && continue
    printf '%s has no RDMA device (rdma link show)\n' "${host[i]}" \
      >"$run_dir/runs/rdma.plain.unavailable"
    note "row rdma is left out: $(cat "$run_dir/runs/rdma.plain.unavailable")"
    for row in "${run_rows[@]}"; do [[ $row == rdma ]] || rows+=("$row"); done
    run_rows=("${rows[@]}")
    ((${#run_rows[@]} > 0)) || die "--rows leaves nothing to run between these hosts."
    return 0
  done
}

# link_variants: what the link is run with.
link_variants() {
  if [[ $link == veth ]]; then printf 'off on'; else printf 'plain %s' "$beside"; fi
}

link_variant() {
  [[ $link == veth ]] || return 0
  local i
  for i in "${every_rank[@]}"; do
    ip netns exec "${compare_ns[i]}" ethtool -K gwv$i tso "$1" gso "$1" gro "$1" >/dev/null 2>&1 ||
      die "ethtool does not turn the offloads of a veth $1."
  done
}

# at RANK COMMAND...: on the rank's core, in its namespace or on its host; in the foreground.
at() {
  local rank=$1
  shift
  case $link in
    veth) exec ip netns exec "${compare_ns[rank]}" taskset -c "${core[rank]}" "$@" ;;
    hosts)
      exec "$ssh" -o BatchMode=yes "${host[rank]}" \
        "taskset -c ${core[rank]} $(printf '%q ' "$@")"
      ;;
    *) exec taskset -c "${core[rank]}" "$@" ;;
  esac
}

# on_host RANK COMMAND...: wherever on the rank's host.
on_host() {
  local rank=$1
  shift
  "$ssh" -o BatchMode=yes -o ConnectTimeout=10 "${host[rank]}" "$(printf '%q ' "$@")"
}

# to_hosts FILE: to the same path on both hosts, where the ranks run elsewhere.
to_hosts() {
  [[ $link == hosts ]] || return 0
  local i mode=644
  [[ ! -x $1 ]] || mode=755
  for i in 0 1; do
    # shellcheck disable=SC2016
    on_host "$i" sh -c 'cat >"$1.part" && chmod "$2" "$1.part" && mv "$1.part" "$1"' to_hosts "$1" \
      "$mode" <"$1"
  done
}

# lane_port RANK MTU: DEVICE=IP/PREFIX,MTU[,GBPS] of the rank's lanes, as daemon_write_config takes
# it.
lane_port() {
  case $link in
    veth)
      if [[ -n $shaped ]]; then
        printf 'net_af_packet0=10.79.2.%d/24,%d,%s' $(($1 + 1)) "$2" "$(shaped_port_rate "$shaped")"
      else
        printf 'net_af_xdp0=10.79.2.%d/24,%d' $(($1 + 1)) "$2"
      fi
      ;;
    hosts)
      local pci=("${ports%,*}" "${ports#*,}") ip=("${lane_ips%,*}" "${lane_ips#*,}")
      printf '%s=%s,%d' "${pci[$1]}" "${ip[$1]}" "$2"
      ;;
    *) printf 'net_memif0=10.77.0.%d/24,%d' $(($1 + 1)) "$2" ;;
  esac
}

# lane_devices RANK: the EAL's arguments for that port, an argument a line.
lane_devices() {
  case $link in
    veth)
      local vdev=net_af_xdp0,iface=gwv$1,start_queue=0,queue_count=1
      [[ -z $shaped ]] || vdev=$(shaped_vdev "gwv$1" "$mtu")
      printf '%s\n' --no-pci --vdev "$vdev"
      ;;
    hosts)
      local pci=("${ports%,*}" "${ports#*,}")
      printf '%s\n' -a "${pci[$1]}"
      ;;
    *)
      local role=server
      (($1 == 0)) || role=client
      printf '%s\n' --no-pci --vdev "$(memif_vdev 0 "$role" 0 "$1")"
      ;;
  esac
}
