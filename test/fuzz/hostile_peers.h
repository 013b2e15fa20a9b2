// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A shard all of whose peers are the input: pools, addresses, and packets that have the right
/// token. Shared by the targets that fuzz a shard with such packets.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "collective/shard.h"
#include "fuzz/eal.h"
#include "fuzz/input.h"

namespace gradwire::fuzz {

inline constexpr std::uint64_t kIncarnation = 300;  ///< and the rank
inline constexpr std::uint64_t kTokenFrom = 100;
inline constexpr std::uint64_t kTokenTo = 200;

inline rte_mempool* large_pool = nullptr;
inline rte_mempool* small_pool = nullptr;  ///< runs dry
inline rte_mempool* control_pool = nullptr;

/// Starts the EAL; once.
inline void make_pools() {
  start_eal();
  constexpr std::uint16_t kRoom = RTE_PKTMBUF_HEADROOM + 2048;
  large_pool = rte_pktmbuf_pool_create("fuzz_large", 1023, 0, 0, kRoom, SOCKET_ID_ANY);
  small_pool = rte_pktmbuf_pool_create("fuzz_small", 7, 0, 0, kRoom, SOCKET_ID_ANY);
  control_pool = rte_pktmbuf_pool_create("fuzz_control", 127, 0, 0, kRoom, SOCKET_ID_ANY);
  FUZZ_CHECK(large_pool != nullptr && small_pool != nullptr && control_pool != nullptr);
}

inline wire::IpAddress ip(std::uint16_t rank) {
  return {.family = 4, .bytes = {10, 0, 0, static_cast<std::uint8_t>(1 + rank)}};
}

/// Says in a configuration that has its ranks how packets go to all of them.
/// @param up, down  the neighbors.
inline void add_peers(collective::ShardConfig& config, std::uint16_t up, std::uint16_t down) {
  for (std::uint16_t rank = 0; rank < config.all_ranks(); ++rank) {
    wire::FrameAddresses addresses;
    addresses.source_ip = ip(config.rank);
    addresses.destination_ip = ip(rank);
    config.peers.push_back({kIncarnation + rank,
                            {kTokenTo + rank, kTokenFrom + rank},
                            ip(rank),
                            *wire::FrameTemplate::make(addresses),
                            0,
                            {},
                            {wire::kSourcePortsMax, true}});
  }
  config.upstream.incarnation = kIncarnation + up;
  config.downstream.incarnation = kIncarnation + down;
  config.upstream.tokens = config.peers[up].tokens;
  config.downstream.tokens = config.peers[down].tokens;
  config.upstream.frame = config.peers[up].frame;
  config.downstream.frame = config.peers[down].frame;
  config.upstream.ip = ip(up);
  config.downstream.ip = ip(down);
}

/// What a packet of that rank begins with.
inline wire::CommonHeader header_from(const collective::ShardConfig& config, std::uint16_t rank,
                                      std::uint64_t packet_number) {
  wire::CommonHeader header;
  header.lane = config.lane;
  header.group_tag = wire::group_tag(config.key);
  header.from_rank = rank;
  header.packet_number = packet_number;
  header.token = kTokenFrom + rank;
  return header;
}

/// A hello, or the answer to one, of that rank.
inline std::vector<std::byte> greeting(const collective::ShardConfig& config, wire::PacketType type,
                                       const wire::CommonHeader& common) {
  wire::HelloBody body;
  body.key = config.key;
  body.incarnation = kIncarnation + common.from_rank;
  body.payload_bytes = config.payload_bytes;
  body.from_rank = common.from_rank;
  body.to_rank = config.rank;
  body.nranks = config.all_ranks();
  body.folding_ranks = config.folding_ranks;
  body.lanes = config.lanes;
  body.members = config.members_said();
  body.credit_chunks = 4;
  std::vector<std::byte> out(1024);
  out.resize(
      wire::encode_hello(out, type, common, body, wire::kHeaderBytes + config.payload_bytes));
  return out;
}

/// Gives a packet to the shard as if it had come from the rank that it names.
/// @return whether it could be decoded, and there was an mbuf for it.
inline bool give(collective::Shard& shard, std::span<const std::byte> packet, wire::Packet& decoded,
                 bool ecn_ce, TimeNs now) {
  rte_mbuf* frame = rte_pktmbuf_alloc(large_pool);
  if (frame == nullptr) return false;
  auto* room = reinterpret_cast<std::byte*>(
      rte_pktmbuf_append(frame, static_cast<std::uint16_t>(packet.size())));
  FUZZ_CHECK(room != nullptr);
  std::memcpy(room, packet.data(), packet.size());
  if (wire::decode({room, packet.size()}, decoded) != wire::Drop::kNone) {
    rte_pktmbuf_free(frame);
    return false;
  }
  const auto from = shard.source_of(decoded.common, ip(decoded.common.from_rank));
  shard.on_packet(frame, decoded, from, ecn_ce, now);
  return true;
}

}  // namespace gradwire::fuzz
