// SPDX-License-Identifier: BSD-3-Clause
// Several ways to a rank: by which one packets go, and how a way is asked whether it is good.
#include "collective/neighbors/rails.h"

#include <algorithm>

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
    case PacketType::kTileCall:
    case PacketType::kTilePull:
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
    case PacketType::kTileCall:
      return packet.tile.asks;
    case PacketType::kTilePull:
      return packet.tile_pull.asks;
    default:
      return false;
  }
}

}  // namespace

Rails::Rails(const ShardConfig& config, Neighbors& neighbors, Greetings& greetings,
             ShardCounters& counters)
    : neighbors_(neighbors),
      greetings_(greetings),
      counters_(counters),
      several_paths_(!config.downstream.others.empty() || !config.upstream.others.empty() ||
                     std::any_of(config.peers.begin(), config.peers.end(),
                                 [](const PeerAddress& peer) { return !peer.others.empty(); })),
      watches_paths_(several_paths_ ||
                     std::any_of(neighbors.links().begin(), neighbors.links().end(),
                                 [](const auto& link) { return link->choice() != nullptr; })) {}

std::uint16_t Rails::down_port() const noexcept {
  for (const auto& link : neighbors_.links()) {
    if (link->greets()) return link->end.address().port;
  }
  return 0;
}

std::uint16_t Rails::up_port() const noexcept {
  for (const auto& link : neighbors_.links()) {
    if (link->is_greeted()) return link->end.port_of(link->end.back());
  }
  return 0;
}

void Rails::note_path(const wire::Packet& packet, PathIndex path, LinkEnd& end) noexcept {
  if (!is_by_choice(packet.common.type)) return;
  end.came_by(path, packet.common.packet_number);
  if (is_question(packet)) end.was_asked_by(path);
}

void Rails::note_source(Link& link, const wire::HelloBody& hello, PathIndex path, bool forming,
                        TimeNs now) noexcept {
  // A rank of which `source` is 0 says nothing of its ports.
  if (hello.source == 0 || hello.heard_source == 0) return;
  const auto source = static_cast<std::uint8_t>(hello.heard_source - 1);
  if (!link.end.take_source(path, source) || forming) return;
  ++counters_.source_port_moves;
  if (path != link.end.path() || !link.gets_data()) return;
  // With two ranks the one link has the data too: what is in flight went from the port before.
  if (link.choice() != nullptr) link.choice()->begin_anew(now);
  link.sender().on_path_changed(true, now);
}

bool Rails::run(TimeNs round, TimeNs now, Outbox& out) noexcept {
  bool moved = false;
  for (LinkIndex i = 0; i < neighbors_.count(); ++i) {
    Link& link = neighbors_.link(i);
    if (link.choice() == nullptr || neighbors_.has_left(i)) continue;
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

bool Rails::ask(Outbox& out) noexcept {
  bool worked = false;
  for (LinkIndex i = 0; i < neighbors_.count(); ++i) {
    PathChoice* const choice = neighbors_.link(i).choice();
    if (choice == nullptr) continue;
    for (auto way = choice->next_to_ask(); way.path != kNoPath; way = choice->next_to_ask()) {
      const std::uint8_t heard = choice->heard_from(way.path);
      if (!greetings_.send(i, PacketType::kHello, way, heard, out)) break;
      choice->asked(way);
      worked = true;
    }
  }
  return worked;
}

}  // namespace gradwire::collective
