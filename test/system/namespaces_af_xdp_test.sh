#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two hosts, as two network namespaces joined by an Ethernet (veth), each with a daemon on af_xdp.
. "$(dirname "$0")/_init.sh"

make_namespaces 1500
daemon_netns[0]=$netns_a
daemon_netns[1]=$netns_b
daemon_write_config 0 "net_af_xdp0=10.79.0.1/24,1500"
daemon_write_config 1 "net_af_xdp0=10.79.0.2/24,1500"
daemon_start 0 --vdev net_af_xdp0,iface=gwa,start_queue=0,queue_count=1
daemon_start 1 --vdev net_af_xdp0,iface=gwb,start_queue=0,queue_count=1
for i in 0 1; do
  if ! daemon_wait_ready "$i"; then
    grep -qiE 'libbpf.*(not supported|Operation not permitted)|XDP.*not supported' \
      "$(daemon_log "$i")" && skip "this kernel or container does not allow AF_XDP sockets"
    fail "the daemons do not start over af_xdp"
  fi
done

expect "sums over af_xdp" "$python" "$repo_root/test/system/sums.py" \
  --sizes 0,1,1000,100000 $(sockets 2)
