#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two hosts in different networks, as two network namespaces, with a router between them that is a
# third: the kernel forwards. Each daemon reaches the other through its gateway. A router that is
# not there is named, and so is a host that has no route.
. "$(dirname "$0")/../_router.sh"

ip -n "$netns_r" addr add 10.78.0.254/24 dev gwb
ip -n "$netns_r" addr add 10.79.0.254/24 dev gwc
ip netns exec "$netns_r" sysctl -q -w net.ipv4.ip_forward=1 || skip "this kernel forwards nothing"

start 0 10.78.0.1/24 'gateway = "10.78.0.254"'
start 1 10.79.0.1/24 'gateway = "10.79.0.254"'
before=$(forwarded rx_bytes)
expect "hosts of two networks sum through a router" sums 0,1,1000,100000
(($(forwarded rx_bytes) - before > 400000)) || fail "the packets did not go through the router"

step "a host that has no route back is named before anybody waits"
expect_stop 1 TERM
start 1 10.79.0.1/24
if sums 1000 4 >"$run_dir/no-route" 2>&1; then fail "a group formed without a route back"; fi
expect_text "the error says what is missing" \
  'rank 0 \(10\.78\.0\.1/24\) cannot reach its .*, rank 1 \(10\.79\.0\.1/24\).*gateway' \
  "$run_dir/no-route"

step "a route that leads elsewhere is named"
expect_stop 1 TERM
start 1 10.79.0.1/24 '[[route]]' 'to = "10.99.0.0/16"' 'via = "10.79.0.254"'
if sums 1000 4 >"$run_dir/elsewhere" 2>&1; then fail "a group formed without a route back"; fi
expect_text "the error names the address and the port" \
  '10\.78\.0\.1 is not on the network 10\.79\.0\.1/24 of port net_af_packet0.*gateway' \
  "$run_dir/elsewhere"

step "a route that leads there will do"
expect_stop 1 TERM
start 1 10.79.0.1/24 '[[route]]' 'to = "10.78.0.0/16"' 'via = "10.79.0.254"'
expect "hosts of two networks sum through a router and a route" sums 1,1000

step "a router that is not there is named"
expect_stop 1 TERM
start 1 10.79.0.1/24 'gateway = "10.79.0.253"'
if sums 1000 8 >"$run_dir/gone" 2>&1; then fail "a group formed without a router"; fi
expect_text "the error names the router" \
  'the router 10\.79\.0\.253, which leads to .* rank 0 \(10\.78\.0\.1\), does not answer ARP' \
  "$run_dir/gone"
