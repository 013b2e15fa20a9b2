// SPDX-License-Identifier: BSD-3-Clause
// Runs in the kernel for each frame that an af_xdp port's interface receives. The port's socket gets
// the daemon's traffic: UDP to its lanes' ports at its address, ARP about its address, echo requests
// to its address. Everything else goes on to the kernel, so that SSH, for example, keeps working.
//
// DPDK's driver loads it (devarg xdp_prog), attaches it and puts its socket into "xsks_map".
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "settings.h"

#define VLAN_ID_BITS 0x0fff
#define ICMP_ECHO_REQUEST 8
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
  return target == settings.ip || sender == settings.ip;
}

static __always_inline int ipv4_is_ours(const struct iphdr* ip, const void* end) {
  const void* payload;
  if ((const void*)(ip + 1) > end) return 0;
  // Lanes read no options and no fragments: those are the kernel's to drop.
  if (ip->version != 4 || ip->ihl != 5 || ip->daddr != settings.ip) return 0;
  if (ip->frag_off & bpf_htons(FRAGMENT_BITS)) return 0;
  payload = ip + 1;
  if (ip->protocol == IPPROTO_UDP) {
    const struct udphdr* udp = payload;
    __u16 port;
    if ((const void*)(udp + 1) > end) return 0;
    port = bpf_ntohs(udp->dest);
    return port >= settings.first_udp_port && port - settings.first_udp_port < settings.udp_ports;
  }
  if (ip->protocol == IPPROTO_ICMP) {
    const __u8* type = payload;
    if ((const void*)(type + 1) > end) return 0;
    return *type == ICMP_ECHO_REQUEST;
  }
  return 0;
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
  if (type == bpf_htons(ETH_P_ARP)) {
    ours = arp_is_ours(payload, end);
  } else if (type == bpf_htons(ETH_P_IP)) {
    ours = ipv4_is_ours(payload, end);
  }
  // Where no socket has the queue, the kernel gets the frame too.
  return ours ? bpf_redirect_map(&xsks_map, context->rx_queue_index, XDP_PASS) : XDP_PASS;
}

char terms[] SEC("license") = "Dual BSD/GPL";
