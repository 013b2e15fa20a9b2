// SPDX-License-Identifier: BSD-3-Clause
// Drops packets by chance where they come in, on a tc clsact hook: -DDROP=N loses N of 2^32. It
// takes nothing but the kernel's headers. scripts/compare/loss.sh compiles and loads it.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

static unsigned (*random_word)(void) = (void*)BPF_FUNC_get_prandom_u32;

__attribute__((section("loss"), used)) int drop_some(struct __sk_buff* packet) {
  (void)packet;
  return random_word() < DROP ? TC_ACT_SHOT : TC_ACT_OK;
}

char terms[] __attribute__((section("license"), used)) = "Dual BSD/GPL";
