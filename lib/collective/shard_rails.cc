// SPDX-License-Identifier: BSD-3-Clause
// Several ways to a rank: by which one packets go, and how a way is asked whether it is good.
#include "collective/shard.h"

namespace gradwire::collective {

using wire::PacketType;

namespace {

/// Whether its sender chose the path: it answers nothing, and is no question about another path.
constexpr bool is_by_choice(PacketType type) noexcept {
  switch (type) {
    case PacketType::kData:
    case PacketType::kPing:
    case PacketType::kContribution:
    case PacketType::kInquiry:
    case PacketType::kOffer:
    case PacketType::kPull:
      return true;
    default:
      return false;
  }
}

/// Whether its sender waits for an answer.
constexpr bool is_question(const wire::Packet& packet) noexcept {
  switch (packet.common.type) {
    case PacketType::kInquiry:
      return true;
    case PacketType::kOffer:
      return packet.offer.asks;
    case PacketType::kPull:
      return packet.pull.asks;
    default:
      return false;
  }
}

}  // namespace

std::uint16_t Shard::down_port() const noexcept {
  for (const auto& link : links_) {
    if (link->gets_data()) return link->end.address().port;
  }
  return 0;
}

std::uint16_t Shard::up_port() const noexcept {
  for (const auto& link : links_) {
    if (link->brings_data()) return link->end.port_of(link->end.back());
  }
  return 0;
}

void Shard::note_path(const wire::Packet& packet, const PacketSource& from) noexcept {
  if (!is_by_choice(packet.common.type)) return;
  LinkEnd& end = wire::goes_to_any_rank(packet.common.type) ? ends_->of(packet.common.from_rank)
                                                            : links_[from.link]->end;
  end.came_by(from.path, packet.common.packet_number);
  if (is_question(packet)) end.was_asked_by(from.path);
}

void Shard::note_source(Link& link, const wire::HelloBody& hello, PathIndex path,
                        TimeNs now) noexcept {
  if (hello.source == 0) return;  // The rank says nothing of its ports.
  const bool forming = membership_.state() == ShardState::kForming;
  if (hello.heard_source == 0) return;
  const auto source = static_cast<std::uint8_t>(hello.heard_source - 1);
  if (!link.end.take_source(path, source) || forming) return;
  ++counters_.source_port_moves;
  if (path != link.end.path() || !link.gets_data()) return;
  // Of two ranks the one link has the data too: what is in flight went from the port before.
  if (link.choice() != nullptr) link.choice()->begin_anew(now);
  link.sender().on_path_changed(true, now);
}

bool Shard::run_rails(TimeNs round, TimeNs now, Outbox& out) noexcept {
  bool moved = false;
  if (!live()) return false;
  for (LinkIndex i = 0; i < links_.size(); ++i) {
    Link& link = *links_[i];
    if (link.choice() == nullptr || membership_.has_left(i)) continue;
    // While this rank waits for another one its next rank may be formed, and take it for dead.
    if (!link.end.answered()) continue;
    const PathChoice::Move move =
        link.choice()->run(round, now, link.end.any_side(out).has_spare());
    if (move == PathChoice::Move::kNone) continue;
    if (move == PathChoice::Move::kSource) {
      ++counters_.source_port_moves;
    } else {
      moved = true;
      ++counters_.path_moves;
      path_since_ = now;
    }
    link.sender().on_path_changed(move != PathChoice::Move::kBack, now);
  }
  return moved;
}

bool Shard::ask_by_rails(Outbox& out) noexcept {
  bool worked = false;
  for (LinkIndex i = 0; i < links_.size(); ++i) {
    PathChoice* const choice = links_[i]->choice();
    if (choice == nullptr) continue;
    for (auto way = choice->next_to_ask(); way.path != kNoPath; way = choice->next_to_ask()) {
      const std::uint8_t heard = choice->heard_from(way.path);
      if (!membership_.send_hello(i, PacketType::kHello, way, heard, out)) break;
      choice->asked(way);
      worked = true;
    }
  }
  return worked;
}

}  // namespace gradwire::collective
