// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/group_keys.h"

#include <utility>

#include "base/require.h"

namespace gradwire::control {

using security::PacketKey;

void GroupKeys::add(std::uint16_t rank, std::uint64_t incarnation, const security::Secret32& root) {
  const security::Mode mode = common_.mode;
  for (std::uint8_t lane = 0; lane < common_.lanes; ++lane) {
    const security::LinkContext to{common_.group,       lane,       mode, common_.rank, rank,
                                   common_.incarnation, incarnation};
    const security::LinkContext from{
        common_.group, lane, mode, rank, common_.rank, incarnation, common_.incarnation};
    const security::OpeningKeys opens_to = security::opening_keys(root, to);
    const security::OpeningKeys opens_from = security::opening_keys(root, from);
    auto link = std::make_unique<Link>();
    link->tokens = {opens_to.token, opens_from.token};
    link->chains.reset(new Chains(security::KeyChain(root, to, common_.table_hash),
                                  security::KeyChain(root, from, common_.table_hash)));
    link->keys.hello_to = PacketKey(mode, opens_to.hello);
    link->keys.hello_from = PacketKey(mode, opens_from.hello);
    for (std::size_t generation = 0; generation < 2; ++generation) {
      link->keys.to[generation] = PacketKey(mode, link->chains->to.next());
      link->keys.from[generation] = PacketKey(mode, link->chains->from.next());
    }
    links_[std::size_t{lane} * common_.all_ranks + rank] = std::move(link);
  }
}

std::unique_ptr<security::LinkSeal> GroupKeys::make_seal(std::uint8_t lane, std::uint16_t rank) {
  security::LinkKeys& keys = link(lane, rank)->keys;
  require(static_cast<bool>(keys.hello_to), "a lane gets the keys of a link once");
  return std::make_unique<security::LinkSeal>(common_.mode, std::exchange(keys, {}));
}

std::shared_ptr<collective::Seals> GroupKeys::make_seals(std::uint8_t lane) {
  std::vector<std::unique_ptr<security::LinkSeal>> by_rank(common_.all_ranks);
  for (std::uint16_t rank = 0; rank < common_.all_ranks; ++rank) {
    if (has(rank)) by_rank[rank] = make_seal(lane, rank);
  }
  return std::make_shared<collective::Seals>(common_.mode, std::move(by_rank));
}

PacketKey GroupKeys::next(std::uint8_t lane, std::uint16_t rank, security::Direction direction) {
  return {common_.mode, chain(lane, rank, direction).next()};
}

std::uint64_t GroupKeys::generation(std::uint8_t lane, std::uint16_t rank,
                                    security::Direction direction) const noexcept {
  return chain(lane, rank, direction).generation();
}

}  // namespace gradwire::control
