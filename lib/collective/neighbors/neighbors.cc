// SPDX-License-Identifier: BSD-3-Clause
// What comes from neighbors, and what is known of them. neighbors_send.cc has what goes there.
#include "collective/neighbors/neighbors.h"

#include <algorithm>

#include "base/require.h"
#include "collective/links/ring_links.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

Links make_links(const ShardConfig& config, const PacketBuffers& buffers, OpTable& ops,
                 ShardCounters& counters) {
  Links links;
  for (std::size_t i = 0; i < link_count(config); ++i) {
    links.push_back(std::make_unique<Link>(ring_link(config, static_cast<LinkIndex>(i)), config,
                                           buffers, ops, counters));
  }
  return links;
}

}  // namespace

Neighbors::Neighbors(const ShardConfig& config, const Group& group, const PacketBuffers& buffers,
                     OpTable& ops, ShardCounters& counters)
    : config_(config),
      group_(group),
      ops_(ops),
      counters_(counters),
      links_(make_links(config, buffers, ops, counters)),
      neighbors_(links_.size()) {}

bool Neighbors::has(std::uint16_t rank) const noexcept {
  return std::any_of(links_.begin(), links_.end(),
                     [&](const auto& link) { return link->end.rank() == rank; });
}

bool Neighbors::judges_silence_of(std::uint16_t rank) const noexcept {
  return group_.formed() && !rank_has_left(rank) &&
         std::any_of(links_.begin(), links_.end(),
                     [&](const auto& link) { return link->end.rank() == rank && !link->quiet(); });
}

bool Neighbors::rank_has_left(std::uint16_t rank) const noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    if (end(i).rank() == rank && neighbors_[i].left) return true;
  }
  return false;
}

bool Neighbors::someone_left() const noexcept {
  return std::any_of(neighbors_.begin(), neighbors_.end(),
                     [](const Neighbor& neighbor) { return neighbor.left; });
}

bool Neighbors::all_acknowledged() const noexcept {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return !link->gets_data() || link->sender().idle(); });
}

void Neighbors::heard_from(std::uint16_t rank) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    if (end(i).rank() == rank) heard(i);
  }
}

bool Neighbors::on_ping(LinkIndex link, const wire::Packet& packet, bool ecn_ce,
                        TimeNs now) noexcept {
  require(links_[link]->brings_data(), "a ping comes from whom data comes");
  heard(link);
  return links_[link]->receiver().on_ping(packet.common.packet_number, packet.asked_op_seq, ecn_ce,
                                          now);
}

void Neighbors::on_bye(LinkIndex link, const wire::ByeBody& bye) noexcept {
  Neighbor& neighbor = neighbors_[link];
  require(!neighbor.left, "a neighbor leaves once");
  answer_bye(link);
  neighbor.left = true;
  neighbor.left_after_op_seq = bye.completed_op_seq;
  // It was formed, so our hello came there, and it will answer none any more: the ops had nothing
  // to send.
  if (links_[link]->greets()) end(link).on_hello_ack();
}

void Neighbors::on_packet_after_abort(LinkIndex link, PacketType type, TimeNs now) noexcept {
  Neighbor& neighbor = neighbors_[link];
  if (type == PacketType::kAbort) {
    neighbor.aborted = true;
    return;
  }
  // Whoever still talks to us has not heard: tell again, but never faster than this.
  if (now < neighbor.next_abort_reply) return;
  neighbor.next_abort_reply = now + config_.timeouts.hello_interval_ns;
  neighbor.abort_reply_wanted = true;
}

void Neighbors::on_formed(TimeNs now) noexcept {
  for (Neighbor& neighbor : neighbors_) neighbor.silence_ns = 0;
  quiet_from(now);
}

void Neighbors::on_aborted() noexcept {
  for (Neighbor& neighbor : neighbors_) neighbor.bye_ack_wanted = false;
}

void Neighbors::lead_to(std::uint16_t rank, const wire::IpAddress& ip,
                        const wire::FrameTemplate& frame) noexcept {
  for (const auto& link : links_) {
    if (link->end.rank() != rank) continue;
    link->end.lead_to(ip, frame);
    if (!group_.live()) continue;
    if (link->gets_data()) link->sender().probe_at_once();
    if (link->brings_data()) link->receiver().transport().request_ack();
  }
}

void Neighbors::quiet_from(TimeNs now) noexcept {
  for (const auto& link : links_) {
    if (link->gets_data()) link->sender().quiet_from(now);
  }
}

void Neighbors::drop_all() noexcept {
  for (const auto& link : links_) {
    if (link->gets_data()) link->sender().drop_all();
  }
}

Neighbors::Cause Neighbors::silent(TimeNs round) noexcept {
  // Whom data comes from is judged before whom it goes to.
  for (LinkIndex i = count(); i-- > 0;) {
    Neighbor& neighbor = neighbors_[i];
    if (neighbor.left || links_[i]->quiet()) continue;
    neighbor.silence_ns += round;
    if (neighbor.silence_ns < config_.timeouts.silence_ns) continue;
    return AbortReason{.code = AbortCode::kSilence,
                       .culprit_rank = end(i).rank(),
                       .reporter_rank = config_.rank,
                       .op_seq = ops_.oldest_unfinished(),
                       .duration_ns = static_cast<std::uint64_t>(neighbor.silence_ns)};
  }
  return {};
}

TimeNs Neighbors::deadline() const noexcept {
  TimeNs earliest = kNever;
  for (LinkIndex i = 0; i < count(); ++i) {
    const Link& link = *links_[i];
    if (link.gets_data()) {
      const LinkSender& to = link.sender();
      earliest = std::min(earliest, to.transport().deadline());
      if (link.choice() != nullptr && !has_left(i)) {
        earliest = std::min(earliest, link.choice()->deadline());
      }
      if (link.end.answered() && !has_left(i)) earliest = std::min(earliest, to.ping_at());
    }
    if (link.brings_data() && link.end.greeted()) {
      earliest = std::min(earliest, link.receiver().transport().deadline());
    }
  }
  return earliest;
}

bool Neighbors::owes_probes() const noexcept {
  return std::any_of(links_.begin(), links_.end(), [](const auto& link) {
    return link->gets_data() && (link->sender().can_probe() || link->sender().asks_at_once());
  });
}

}  // namespace gradwire::collective
