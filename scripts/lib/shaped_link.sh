# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# A link of a given rate on one machine: two namespaces joined by a veth, with a token bucket at
# both ends through which everything goes. Frames of gradwire do if they are sent by af_packet
# without qdisc_bypass; af_xdp goes past the bucket.
# Needs setup.sh, and for daemons daemons.sh.

# shaped_gbit_check OPTION VALUE: Gbit/s that a bucket keeps exactly, and two cores can fill.
shaped_gbit_check() {
  if ! [[ $2 =~ ^(0\.[0-9]{1,3}|[1-9][0-9]?(\.[0-9]{1,3})?)$ ]] ||
    ! awk -v rate="$2" 'BEGIN { exit !(rate >= 0.01 && rate <= 10) }'; then
    die "$1 is '$2': Gbit/s from 0.01 to 10, as in 1 or 2.5."
  fi
}

# shape GBIT NAMESPACE DEVICE: what the device sends passes a bucket of that rate.
shape() {
  local kbit burst
  kbit=$(awk -v rate="$1" 'BEGIN { printf "%d", rate * 1e6 }')
  # A quarter of a millisecond, and what TCP's segmentation hands over at once.
  burst=$((kbit / 32 > 131072 ? kbit / 32 : 131072))
  tc -n "$2" qdisc add dev "$3" root tbf rate "${kbit}kbit" burst "$burst" latency 20ms ||
    die "tc has no token bucket (tbf) in this kernel: --shaped needs it."
}

# shaped_port_rate GBIT: what a port of gradwire may send into the bucket, so that it never fills.
shaped_port_rate() { awk -v rate="$1" 'BEGIN { printf "%.4f", rate * 0.995 }'; }

# shaped_vdev DEVICE MTU: the EAL's --vdev of a port that sends through the bucket.
shaped_vdev() {
  local frame=2048
  (($2 <= 1900)) || frame=16384
  printf 'net_af_packet0,iface=%s,qdisc_bypass=0,blocksz=65536,framesz=%d,framecnt=512' "$1" \
    "$frame"
}

# shaped_hosts GBIT: two namespaces, which daemon_netns then names, a veth with a bucket at each
# end, gwv0 and gwv1, and addresses 10.79.1.1 and 10.79.1.2 of the kernel.
shaped_hosts() {
  local i namespaces=()
  for i in 0 1; do
    namespaces[i]=gwd$$-$i
    ip netns add "${namespaces[i]}" || die "this kernel or container has no network namespaces."
    on_exit ip netns del "${namespaces[i]}"
  done
  ip -n "${namespaces[0]}" link add gwv0 type veth peer name gwv1 netns "${namespaces[1]}" ||
    die "this kernel has no veth devices."
  for i in 0 1; do
    ip -n "${namespaces[i]}" link set gwv$i mtu 1500 up
    ip -n "${namespaces[i]}" link set lo up
    ip -n "${namespaces[i]}" addr add "10.79.1.$((i + 1))/24" dev gwv$i
    # As a wire has them: no frame above the MTU.
    ip netns exec "${namespaces[i]}" ethtool -K gwv$i tso off gso off gro off >/dev/null ||
      die "ethtool does not turn the offloads of a veth off."
    shape "$1" "${namespaces[i]}" gwv$i
  done
  daemon_netns=("${namespaces[@]}")
}

# shaped_daemons_start GBIT: a daemon in each, by af_packet through the bucket.
shaped_daemons_start() {
  local i
  for i in 0 1; do
    daemon_write_config $i \
      "net_af_packet0=10.79.2.$((i + 1))/24,1500,$(shaped_port_rate "$1")"
    daemon_start $i --vdev "$(shaped_vdev gwv$i 1500)"
  done
  for i in 0 1; do daemon_wait_ready $i || return 1; done
}

# shaped_blast FROM_NAMESPACE TO_NAMESPACE DEVICE ADDRESS: Gbit/s that arrive at the device while
# somebody sends UDP to it as fast as he can.
shaped_blast() {
  local blast=("$python" "$repo_root/scripts/lib/udp_blast.py") sender
  timeout 20 ip netns exec "$1" "${blast[@]}" send "$4" 3 </dev/null >/dev/null &
  sender=$!
  timeout 20 ip netns exec "$2" "${blast[@]}" count "$4" "$3" || die "no UDP gets through $3."
  end_process "$sender"
}

# shaped_watch NAMESPACE DEVICE FILE: in the background, until its process $! is ended; the file
# then has the Gbit/s that the device received in the second in which it received most.
shaped_watch() {
  ip netns exec "$1" "$python" "$repo_root/scripts/lib/udp_blast.py" watch "$2" "$3" </dev/null &
}
