// SPDX-License-Identifier: BSD-3-Clause
// Groups whose packets are sealed: their shards' keys, and packets that are opened.
#include <algorithm>

#include "base/require.h"
#include "sim/world/world.h"
#include "wire/sealed.h"

namespace gradwire::sim {

WorldKeys::Ends World::ends_of(GroupId group, std::uint8_t lane, std::uint16_t from,
                               std::uint16_t to) const {
  const std::vector<HostId>& hosts = groups_[group].options.hosts;
  return {lane, from, to, hosts_[hosts[from]].incarnation, hosts_[hosts[to]].incarnation};
}

std::shared_ptr<collective::Seals> World::make_seals(GroupId group, std::uint16_t rank,
                                                     std::uint8_t lane) {
  const GroupOptions& options = groups_[group].options;
  if (options.mode == security::Mode::kOff) return nullptr;
  std::vector<WorldKeys::Ends> ends;
  for (std::uint16_t other = 0; other < options.hosts.size(); ++other) {
    if (other != rank) ends.push_back(ends_of(group, lane, rank, other));
  }
  return keys_.make_seals(options, ends);
}

void World::take_wishes(const Place& place) {
  for (collective::KeyWish wish; place.shard->pop_key_wish(wish);) {
    at(now_ + groups_[place.group].options.key_delay_ns, [this, place, wish] {
      const Rank& rank = groups_[place.group].ranks[place.rank];
      // It may have ended meanwhile.
      if (!hosts_[rank.host].alive || place.lane >= rank.shards.size() ||
          rank.shards[place.lane].get() != place.shard) {
        return;
      }
      trace_.mix(now_, 35, place.group, place.rank, place.lane, wish.rank, wish.generation);
      trace_.line(now_, "host {:<3} group {} rank {} lane {} gets key {} of what goes {} rank {}",
                  rank.host, place.group, place.rank, place.lane, wish.generation,
                  wish.direction == security::Direction::kTo ? "to" : "from", wish.rank);
      static_cast<void>(place.shard->supply_key(
          wish, keys_.next_key(groups_[place.group].options, place.rank, place.lane, wish)));
      wake(hosts_[rank.host], now_);
    });
  }
}

void World::forge(HostId from, HostId to, std::span<const std::byte> frame, std::size_t headers) {
  if ((frame[headers + wire::kFlagsAt] & static_cast<std::byte>(wire::kSealFlags)) == std::byte{}) {
    return;
  }
  std::vector<std::byte> forged(frame.begin(), frame.end());
  std::vector<std::byte>& kept = seen_[random_.below(seen_.size())];
  // An old one goes where it went, whoever sends something now: its addresses say where.
  if (kept.size() == forged.size() &&
      std::equal(kept.begin(), kept.begin() + headers, forged.begin()) && random_.chance(0.5)) {
    std::swap(kept, forged);
  } else {
    kept = forged;
    const std::span<std::byte> packet = std::span(forged).subspan(headers);
    const std::uint32_t addresses = wire::header_crc_error(packet);
    for (std::uint64_t i = random_.below(3) + 1; i > 0; --i) {
      packet[random_.below(packet.size())] ^= static_cast<std::byte>(1u << random_.below(8));
    }
    if (random_.chance(0.2)) packet[9] ^= std::byte{1};  // a number far ahead
    wire::renew_header_crc(packet.data(), addresses);
  }
  const auto bytes = static_cast<std::uint32_t>(forged.size());
  network_.send(now_, from, to, forged, bytes);
}

/// As hand_over(), of a packet of which only its header was looked at.
void World::hand_over_sealed(collective::Shard& shard, collective::PacketSource from,
                             wire::Packet& packet, std::uint8_t rail, wire::FrameView& frame,
                             const Received& received, TimeNs local_now) {
  rte_mbuf* mbuf = received.mbuf;
  const auto bytes_of = [](const rte_mbuf* of) {
    return std::span<const std::byte>(rte_pktmbuf_mtod(of, const std::byte*), of->data_len);
  };
  if (runs_.is_of(shard, received.marked) && runs_.take(rail, bytes_of(mbuf), mbuf)) return;
  runs_.end(local_now);
  std::span<const std::byte> opened = frame.payload;
  from.drop = shard.open(packet.common, mbuf, opened);
  frame.payload = {opened.data(), frame.payload.size()};
  if (from.drop == wire::Drop::kNone) {
    require(wire::decode_body(opened, packet) == wire::Drop::kNone,
            "what was sealed by a rank and not changed since is a packet");
  }
  if (packet.common.type == wire::PacketType::kData && from.drop == wire::Drop::kNone) {
    runs_.begin(shard, from, packet, received.marked, rail, bytes_of(mbuf), frame, mbuf);
  } else {
    shard.on_packet(mbuf, packet, from, received.marked, local_now);
  }
}

}  // namespace gradwire::sim
