// SPDX-License-Identifier: BSD-3-Clause
// A scenario in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/seeds/scenario.h"
#include "sim/units.h"

namespace gradwire::sim {

std::string describe(const Scenario& s) {
  const collective::ShardConfig& shard = s.group.shard;
  const LinkProfile& link = s.world.link;
  std::string text = fmt::format(
      "seed {} profile {}: {} ranks, {} fold only, {} members, {} lanes, payload {}, window {}, "
      "transit {}, eager {}, exchange {}, direct {}, two steps {}, gathered {} above {} ranks, "
      "active ops {}, batches of {}, silence {} ms\n"
      "network: {} ns, jitter {} ns, {} bit/s, loss {}, bursts {} of {} ns, duplication {}, "
      "corruption {}, reordering {} by {} ns\n"
      "hosts: round {} ns, drivers hold {} ns, {} and {} descriptors, behind {}\n",
      s.seed, s.profile, s.nranks, s.group.folding_ranks, s.group.members, s.group.lanes,
      shard.payload_bytes, shard.window_packets, shard.transit_packets, shard.eager_packets,
      shard.exchange_bytes, shard.direct.op_bytes, shard.direct.two_step_bytes,
      shard.direct.gathered_bytes, shard.direct.gathered_ranks, shard.max_active_ops,
      shard.batch_entries, shard.timeouts.silence_ns / kMs, link.delay_ns, link.jitter_ns,
      s.world.port.rate_bps, link.loss, link.burst_start, link.burst_ns, link.duplication,
      link.corruption, link.reorder, link.reorder_ns, s.hosts[0].round_ns,
      s.hosts[0].driver_holds_ns, s.hosts[0].rx_descriptors, s.hosts[0].tx_descriptors,
      s.hosts[0].port_behind);
  for (std::size_t rank = 0; rank < s.nranks; ++rank) {
    const HostProfile& host = s.hosts[rank];
    text += fmt::format("rank {}: posts {} ahead", rank, s.ops_ahead[rank]);
    if (host.slow_backend > 0) text += fmt::format(", slow backend {}", host.slow_backend);
    if (host.window_packets != 0) text += fmt::format(", window {}", host.window_packets);
    if (host.transit_packets != 0) text += fmt::format(", transit {}", host.transit_packets);
    if (host.max_active_ops != 0) text += fmt::format(", active ops {}", host.max_active_ops);
    text += '\n';
  }
  const bool ways = s.world.rails * s.world.spines > 1;
  if (ways) text += fmt::format("{} rails of {} paths, ", s.world.rails, s.world.spines);
  if (ways) text += fmt::format("with IPv6 those of {:#b}\n", s.world.ipv6_rails);
  if (s.world.source_ports > 1) text += fmt::format("{} source ports\n", s.world.source_ports);
  if (s.group.mode != security::Mode::kOff) {
    text += fmt::format("packets: {}, generations of 2^{} packets, keys come after {} ns\n",
                        security::name_of(s.group.mode), s.group.generation_bits,
                        s.group.key_delay_ns, s.world.forging);
  }
  if (!s.group.owners.empty()) {
    text += fmt::format("owners of ops in two steps: {}\n", fmt::join(s.group.owners, " "));
  }
  if (!s.group.rates.empty()) {
    text += fmt::format("rates of the hosts: {}\n", fmt::join(s.group.rates, " "));
  }
  if (const auto& costs = s.group.endpoint) {
    text += fmt::format("tiles if faster: a packet takes {} ns, a byte {} ps, a hop {} ns\n",
                        costs->packet_ns, costs->byte_ps, costs->hop_ns);
  }
  if (!s.group.ranks.empty()) {
    text += fmt::format("ranks of the processes: {}\n", fmt::join(s.group.ranks, " "));
  }
  constexpr std::size_t kOpsShown = 12;
  for (std::size_t i = 0; i < s.ops.size(); ++i) {
    if (i == kOpsShown && s.ops.size() > 2 * kOpsShown) {
      i = s.ops.size() - 2;
      text += fmt::format("ops {} to {}: alike, of one packet at most\n", kOpsShown + 1, i);
      continue;
    }
    const OpPlan& plan = s.ops[i].plan;
    text += fmt::format(
        "op {}: {} of {} {} by {}{}{}\n", i + 1, name_of(plan.collective), plan.count,
        name_of(plan.datatype), name_of(plan.redop), plan.in_place ? ", in place" : "",
        plan.wire == WireFormat::kSame ? std::string()
                                       : fmt::format(", as {}{}", name_of(plan.wire),
                                                     plan.feeds_back ? " with residuals" : ""));
  }
  if (!s.transfers.transfers.empty()) {
    text += fmt::format("{} transfers, under way at most by rank:", s.transfers.transfers.size());
    for (const std::uint32_t ahead : s.transfers.ahead) text += fmt::format(" {}", ahead);
    text += '\n';
  }
  for (std::uint16_t rank = 0; rank < s.nranks && s.odd.op_seq != 0; ++rank) {
    const auto& call = s.odd.calls[rank];
    if (!call) continue;
    text += fmt::format("rank {} calls op {} as {} of {} elements of {} by {}, root {}, tag {}\n",
                        rank, s.odd.op_seq, name_of(call->collective), call->count,
                        name_of(call->datatype), name_of(call->redop), call->root, call->tag);
  }
  if (s.odd.end) {
    text += fmt::format("transfer {}: the {} posts {} bytes with tag {}\n", *s.odd.end / 2,
                        *s.odd.end % 2 == 0 ? "source" : "destination", s.odd.terms.bytes,
                        s.odd.terms.tag);
  }
  if (s.neighbor != nullptr) {
    text += fmt::format("another user's group on hosts {}: {} ops, {} transfers\n",
                        fmt::join(s.neighbor->group.hosts, " "), s.neighbor->ops.size(),
                        s.neighbor->transfers.transfers.size());
  }
  for (const Fault& fault : s.faults) {
    text += fmt::format("fault: at {} us for {} us: {}, {} {}", fault.at / kUs,
                        fault.duration_ns / kUs, name_of(fault.kind), fault.a, fault.b);
    text += ways ? fmt::format(", rail {} path {}\n", fault.rail, fault.spine) : "\n";
  }
  if (s.cut_after_first_done) text += "fault: cut off after the first rank is through with an op\n";
  return text;
}

}  // namespace gradwire::sim
