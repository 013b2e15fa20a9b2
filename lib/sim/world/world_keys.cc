// SPDX-License-Identifier: BSD-3-Clause
#include "sim/world/world_keys.h"

#include <algorithm>
#include <bit>

#include "base/require.h"
#include "sim/random.h"
#include "wire/sealed.h"

namespace gradwire::sim {
namespace {

security::LinkContext context_of(const GroupOptions& options, const WorldKeys::Ends& ends) {
  return {.group = options.key,
          .lane = ends.lane,
          .mode = options.mode,
          .from_rank = ends.from,
          .to_rank = ends.to,
          .from_incarnation = ends.from_incarnation,
          .to_incarnation = ends.to_incarnation};
}

std::uint64_t mix(std::uint64_t digest, std::uint64_t part) noexcept {
  return (std::rotl(digest, 23) ^ part) * 0x9e3779b97f4a7c15;
}

}  // namespace

security::Secret32 WorldKeys::root(const GroupOptions& options, const Ends& ends) const {
  std::uint64_t pair = mix(seed_, options.key.group_id);
  pair = mix(pair, std::min(ends.from, ends.to));
  Random random(mix(pair, std::max(ends.from, ends.to)));
  security::Secret32 root;
  for (std::byte& byte : root.span()) byte = static_cast<std::byte>(random.next());
  return root;
}

std::uint64_t WorldKeys::token(const GroupOptions& options, const Ends& ends) const {
  if (options.mode != security::Mode::kOff) {
    return security::opening_keys(root(options, ends), context_of(options, ends)).token;
  }
  std::uint64_t value = ends.lane;
  for (const std::uint64_t part : {ends.from_incarnation, ends.to_incarnation, options.key.group_id,
                                   std::uint64_t{options.key.epoch}}) {
    value = (value + part) * 0x9e3779b97f4a7c15;
  }
  return value;
}

std::shared_ptr<collective::Seals> WorldKeys::make_seals(const GroupOptions& options,
                                                         std::span<const Ends> ends) {
  tags_.insert(wire::group_tag(options.key));
  std::vector<std::unique_ptr<security::LinkSeal>> by_rank(options.hosts.size());
  for (const Ends& to : ends) {
    security::LinkStart start =
        security::start_link(root(options, to), context_of(options, to), security::Sha256{});
    by_rank[to.to] = std::make_unique<security::LinkSeal>(options.mode, std::move(start.keys),
                                                          options.generation_bits);
    chains_[{options.key.group_id, options.key.epoch, to.from, to.lane, to.to}] =
        std::move(start.chains);
  }
  return std::make_shared<collective::Seals>(options.mode, std::move(by_rank));
}

security::PacketKey WorldKeys::next_key(const GroupOptions& options, std::uint16_t rank,
                                        std::uint8_t lane, const collective::KeyWish& wish) {
  security::KeyChain& chain =
      chains_.at({options.key.group_id, options.key.epoch, rank, lane, wish.rank})
          ->of(wish.direction);
  require(chain.generation() == wish.generation, "keys are wished for one after the other");
  return security::PacketKey(options.mode, chain.next());
}

void WorldKeys::look_at(std::span<const std::byte> packet) {
  if (tags_.empty()) return;
  wire::Packet decoded;
  // Over IPv6 the header's CRC has the addresses in it, of which nothing here depends.
  if (wire::decode_header(packet, decoded, wire::header_crc_error(packet)) != wire::Drop::kNone ||
      tags_.count(decoded.common.group_tag) == 0) {
    return;
  }
  if (decoded.common.sealed == 0) {
    ++unsealed_;
    return;
  }
  constexpr std::size_t kCrcAt = 48;  // the header's own, which is not sealed
  constexpr std::size_t kCrcEnd = 52;
  std::uint64_t digest = packet.size();
  for (std::size_t i = 0; i < packet.size(); ++i) {
    if (i < kCrcAt || i >= kCrcEnd) digest = mix(digest, std::to_integer<std::uint64_t>(packet[i]));
  }
  const std::uint64_t link =
      mix(mix(decoded.common.token, decoded.common.packet_number), decoded.common.group_tag);
  const auto [before, first] = sealed_.emplace(link, digest);
  if (!first && before->second != digest) ++nonces_reused_;
}

}  // namespace gradwire::sim
