// SPDX-License-Identifier: BSD-3-Clause
// What the status of a shard says of its neighbors.
#include "collective/links/peer_links.h"
#include "collective/neighbors/neighbors.h"

namespace gradwire::collective {
namespace {

void fill_sender(const LinkSender& to, ShardStatus& status) {
  const transport::Sender& sender = to.transport();
  status.downstream_posted_op_seq = sender.posted_op_seq();
  status.bytes_in_flight = sender.bytes_in_flight();
  status.transit_queued = static_cast<std::uint32_t>(to.ready());
  status.smoothed_rtt_ns = sender.rtt().smoothed_ns();
  status.pto_count = sender.pto_count();
  status.latest_rtt_ns = sender.rtt().latest_ns();
  status.min_rtt_ns = sender.rtt().min_ns();
  status.rttvar_ns = sender.rtt().variance_ns();
  status.window_bytes = sender.window_bytes();
  status.packets_in_flight = sender.packets_in_flight();
  status.ecn_ce_reported = sender.ecn_ce_count();
  status.packets_lost = sender.packets_lost();
  status.credit_chunks = sender.credit_chunks();
  status.chunks_sent = to.chunks_sent();
}

}  // namespace

void Neighbors::fill(ShardStatus& status) const noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    const Link& link = *links_[i];
    if (link.attached()) {
      status.attached_heard = link.end.open();
      continue;
    }
    if (link.greets()) {
      status.downstream_silence_ns = neighbors_[i].silence_ns;
      status.downstream_heard = link.end.answered();
      if (link.gets_data()) fill_sender(link.sender(), status);
      status.downstream_ip = link.end.ip_of(link.end.path());
      status.downstream_source_port = link.end.source_port(link.end.source_of(link.end.path()));
    }
    if (link.is_greeted()) {
      status.upstream_silence_ns = neighbors_[i].silence_ns;
      status.upstream_heard = link.end.greeted();
      status.upstream_ip = link.end.ip_of(link.end.back());
      status.upstream_source_port = link.end.source_port(link.end.source_of(link.end.back()));
    }
  }
}

void Neighbors::fill_least_heard(ShardStatus& status) const noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    // Pings alone go to the rank without members that hangs on this one.
    if (!links_[i]->attached() || neighbors_[i].silence_ns <= status.least_heard_ns) continue;
    status.least_heard_rank = end(i).rank();
    status.least_heard_ns = neighbors_[i].silence_ns;
    status.least_heard_unanswered = kUnansweredMin;
    status.least_heard_ip = end(i).ip_of(end(i).path());
  }
}

}  // namespace gradwire::collective
