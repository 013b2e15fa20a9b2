// SPDX-License-Identifier: BSD-3-Clause
// Runs in the kernel for each frame that an af_xdp port's interface receives. The port's socket
// gets the daemon's traffic: UDP to its lanes' ports at its address, ARP (over IPv6 neighbor
// discovery) about its address, echo requests to its address. Everything else goes on to the
// kernel, so that SSH, for example, keeps working.
//
// DPDK's driver loads it (devarg xdp_prog), attaches it and puts its socket into "xsks_map".
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "settings.h"

#define VLAN_ID_BITS 0x0fff
#define ICMP_ECHO_REQUEST 8
#define ICMPV6_ECHO_REQUEST 128
#define NEIGHBOR_SOLICITATION 135
#define NEIGHBOR_ADVERTISEMENT 136
#define FRAGMENT_BITS 0x3fff  // an offset, or more fragments to come
#define MAX_QUEUES 256

struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __uint(key_size, sizeof(int));
  __uint(value_size, sizeof(int));
  __uint(max_entries, MAX_QUEUES);
} xsks_map SEC(".maps");

// volatile: the compiler must not know the values, since they are not these.
const volatile struct gradwire_xdp_settings settings = {.mark = GRADWIRE_XDP_MARK};

struct vlan_tag {
  __be16 tag;
  __be16 type;
};

// RFC 826 for Ethernet and IPv4.
struct arp_packet {
  __be16 hardware_type;
  __be16 protocol_type;
  __u8 hardware_bytes;
  __u8 protocol_bytes;
  __be16 operation;
  __u8 sender_mac[ETH_ALEN];
  __u8 sender_ip[4];
  __u8 target_mac[ETH_ALEN];
  __u8 target_ip[4];
};

static __always_inline int arp_is_ours(const struct arp_packet* arp, const void* end) {
  __u32 sender;
  __u32 target;
  if ((const void*)(arp + 1) > end) return 0;
  if (arp->protocol_type != bpf_htons(ETH_P_IP) || arp->protocol_bytes != 4) return 0;
  __builtin_memcpy(&sender, arp->sender_ip, sizeof sender);
  __builtin_memcpy(&target, arp->target_ip, sizeof target);
  return target == settings.ip[0] || sender == settings.ip[0];
}

static __always_inline int udp_is_ours(const struct udphdr* udp, const void* end) {
  __u16 port;
  if ((const void*)(udp + 1) > end) return 0;
  port = bpf_ntohs(udp->dest);
  return port >= settings.first_udp_port && port - settings.first_udp_port < settings.udp_ports;
}

static __always_inline int ipv4_is_ours(const struct iphdr* ip, const void* end) {
  const void* payload;
  if ((const void*)(ip + 1) > end) return 0;
  // Lanes read no options and no fragments: those are the kernel's to drop.
  if (ip->version != 4 || ip->ihl != 5 || ip->daddr != settings.ip[0]) return 0;
  if (ip->frag_off & bpf_htons(FRAGMENT_BITS)) return 0;
  payload = ip + 1;
  if (ip->protocol == IPPROTO_UDP) return udp_is_ours(payload, end);
  if (ip->protocol == IPPROTO_ICMP) {
    const __u8* type = payload;
    if ((const void*)(type + 1) > end) return 0;
    return *type == ICMP_ECHO_REQUEST;
  }
  return 0;
}

static __always_inline int is_our_ipv6(const struct in6_addr* ip) {
  __u32 words[4];
  __builtin_memcpy(words, ip, sizeof words);
  return words[0] == settings.ip[0] && words[1] == settings.ip[1] && words[2] == settings.ip[2] &&
         words[3] == settings.ip[3];
}

// RFC 4861 sections 4.3 and 4.4, without their options.
struct discovery_message {
  __u8 type;
  __u8 code;
  __be16 checksum;
  __be32 flags;
  struct in6_addr target;
};

static __always_inline int ipv6_is_ours(const struct ipv6hdr* ip, const void* end) {
  const struct discovery_message* message = (const void*)(ip + 1);
  if ((const void*)(ip + 1) > end || ip->version != 6) return 0;
  if (ip->nexthdr == IPPROTO_UDP) {
    return is_our_ipv6(&ip->daddr) && udp_is_ours((const void*)(ip + 1), end);
  }
  if (ip->nexthdr != IPPROTO_ICMPV6 || (const void*)&message->code > end) return 0;
  if (message->type == ICMPV6_ECHO_REQUEST) return is_our_ipv6(&ip->daddr);
  if (message->type != NEIGHBOR_SOLICITATION && message->type != NEIGHBOR_ADVERTISEMENT) return 0;
  if ((const void*)(message + 1) > end) return 0;
  // A question for us, an answer to us, or somebody who says that our address is its own.
  return is_our_ipv6(&message->target) || is_our_ipv6(&ip->daddr) || is_our_ipv6(&ip->saddr);
}

SEC("xdp")
int gradwire_steer(struct xdp_md* context) {
  const void* const end = (const void*)(long)context->data_end;
  const struct ethhdr* const ethernet = (const void*)(long)context->data;
  const void* payload = ethernet + 1;
  __be16 type;
  __u16 vlan_id = 0;
  int ours = 0;
  if (payload > end || settings.udp_ports == 0) return XDP_PASS;
  type = ethernet->h_proto;
  if (type == bpf_htons(ETH_P_8021Q)) {
    const struct vlan_tag* const vlan = payload;
    payload = vlan + 1;
    if (payload > end) return XDP_PASS;
    vlan_id = bpf_ntohs(vlan->tag) & VLAN_ID_BITS;
    type = vlan->type;
  }
  if (vlan_id != settings.vlan_id) return XDP_PASS;
  if (settings.is_ipv6) {
    if (type == bpf_htons(ETH_P_IPV6)) ours = ipv6_is_ours(payload, end);
  } else if (type == bpf_htons(ETH_P_ARP)) {
    ours = arp_is_ours(payload, end);
  } else if (type == bpf_htons(ETH_P_IP)) {
    ours = ipv4_is_ours(payload, end);
  }
  // Where no socket has the queue, the kernel gets the frame too.
  return ours ? bpf_redirect_map(&xsks_map, context->rx_queue_index, XDP_PASS) : XDP_PASS;
}

char terms[] SEC("license") = "Dual BSD/GPL";
