// SPDX-License-Identifier: BSD-3-Clause
// For stories: loses PER_THOUSAND of a thousand frames that come in, by chance; of ARP alone if
// ONLY_ARP is 1.
#include <linux/bpf.h>
#include <linux/if_ether.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int lose(struct xdp_md* context) {
  void* end = (void*)(long)context->data_end;
  struct ethhdr* ethernet = (void*)(long)context->data;
  if ((void*)(ethernet + 1) > end) return XDP_PASS;
  if (ONLY_ARP && ethernet->h_proto != bpf_htons(ETH_P_ARP)) return XDP_PASS;
  return bpf_get_prandom_u32() % 1000 < PER_THOUSAND ? XDP_DROP : XDP_PASS;
}

char licenses[] SEC("license") = "Dual BSD/GPL";
