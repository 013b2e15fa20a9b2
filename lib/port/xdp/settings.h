/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What the XDP program is told: one struct, in C and in C++. It stands in the program's constants;
 * the daemon finds it there by its mark and writes its own numbers over it before the program is
 * loaded, so that nothing is compiled on the host.
 */
#pragma once

#include <linux/types.h>

#define GRADWIRE_XDP_MARK "gradwire-xdp-1\0"
#define GRADWIRE_XDP_MARK_BYTES 16

struct gradwire_xdp_settings {
  char mark[GRADWIRE_XDP_MARK_BYTES];
  __u32 ip[4];          /* ours, network byte order; IPv4 in the first */
  __u16 first_udp_port; /* of lane 0, host byte order */
  __u16 udp_ports;      /* lanes; 0: nothing is ours */
  __u16 vlan_id;        /* of every frame of ours; 0: untagged */
  __u16 is_ipv6;
};
