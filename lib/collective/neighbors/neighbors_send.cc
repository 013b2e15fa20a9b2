// SPDX-License-Identifier: BSD-3-Clause
// What goes to neighbors: aborts, byes and the answers to them, pings and acknowledgements.
#include <algorithm>

#include "collective/neighbors/neighbors.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

constexpr std::uint32_t kLastWordsFrom = 4;  ///< source ports, at once

}  // namespace

void Neighbors::answer_byes(const wire::ByeBody& done, Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    bool& wanted = neighbors_[i].bye_ack_wanted;
    if (wanted) wanted = !send_bye(i, PacketType::kByeAck, done, out);
  }
}

bool Neighbors::send_byes(const wire::ByeBody& done, Outbox& out) noexcept {
  bool worked = false;
  for (LinkIndex i = 0; i < count(); ++i) {
    if (!neighbors_[i].bye_acked) worked |= send_bye(i, PacketType::kBye, done, out);
  }
  return worked;
}

bool Neighbors::all_byes_known() const noexcept {
  return std::all_of(neighbors_.begin(), neighbors_.end(),
                     [](const Neighbor& neighbor) { return neighbor.bye_acked || neighbor.left; });
}

void Neighbors::send_aborts(const AbortReason& reason, Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) send_abort(i, reason, out);
}

void Neighbors::answer_after_abort(const AbortReason& reason, Outbox& out) noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    bool& wanted = neighbors_[i].abort_reply_wanted;
    if (wanted) wanted = !send_abort(i, reason, out);
  }
}

bool Neighbors::all_know_of(const AbortReason& abort) const noexcept {
  for (LinkIndex i = 0; i < count(); ++i) {
    const Neighbor& neighbor = neighbors_[i];
    const bool fell_silent =
        abort.code == AbortCode::kSilence && abort.culprit_rank == end(i).rank();
    if (!neighbor.aborted && !neighbor.left && !fell_silent) return false;
  }
  return true;
}

/// By every path, and from other source ports each time, since nobody knows yet which of them live:
/// from several at once, unless the port is behind.
/// @return whether one took it.
template <class Encode>
bool Neighbors::send_by_all(LinkIndex link, Outbox& out, Encode&& encode) noexcept {
  bool sent = false;
  const LinkEnd& to = end(link);
  const bool spare = to.any_side(out).has_spare();
  const std::uint32_t words =
      spare ? std::min<std::uint32_t>(kLastWordsFrom, to.sources().count) : 1;
  std::uint32_t& before = neighbors_[link].last_words;
  for (std::size_t i = 0; i < to.path_count(); ++i) {
    const auto path = static_cast<PathIndex>(i);
    for (std::uint32_t word = 0; word < words; ++word) {
      const bool own = word == 0 && (spare || before % 2 == 0);
      const std::uint8_t source = to.source_after(path, own ? 0 : before + word);
      sent |= to.send_from(path, source, config_.control_pool, to.any_side(out), encode);
    }
  }
  before += words;
  return sent;
}

bool Neighbors::send_abort(LinkIndex link, const AbortReason& reason, Outbox& out) noexcept {
  return send_by_all(link, out, [&](std::span<std::byte> room) {
    return wire::encode_abort(room, end(link).header(PacketType::kAbort), reason);
  });
}

bool Neighbors::send_bye(LinkIndex link, PacketType type, const wire::ByeBody& bye,
                         Outbox& out) noexcept {
  return send_by_all(link, out, [&](std::span<std::byte> room) {
    return wire::encode_bye(room, type, end(link).header(type), bye);
  });
}

bool Neighbors::send_rest(bool more_to_go, TimeNs now, Outbox& out) noexcept {
  bool worked = false;
  for (LinkIndex i = 0; i < count(); ++i) {
    Link& link = *links_[i];
    if (!link.gets_data() || !link.end.answered()) continue;
    LinkSender& to = link.sender();
    OutboxSide& box = link.end.side(out);
    worked |= to.send_ready(now, box);
    to.notice_blocked(more_to_go && link.on_ring(), now);
    if (!has_left(i)) worked |= to.send_ping_if_quiet(now, box);
  }
  return worked;
}

}  // namespace gradwire::collective
