// SPDX-License-Identifier: BSD-3-Clause
#include "control/keys/group_keys.h"

#include <utility>

#include "base/require.h"

namespace gradwire::control {

using security::PacketKey;

void GroupKeys::add(std::uint16_t rank, std::uint64_t incarnation, const security::Secret32& root) {
  for (std::uint8_t lane = 0; lane < common_.lanes; ++lane) {
    const security::LinkContext to{
        common_.group, lane, common_.mode, common_.rank, rank, common_.incarnation, incarnation};
    links_[std::size_t{lane} * common_.all_ranks + rank] =
        std::make_unique<security::LinkStart>(security::start_link(root, to, common_.table_hash));
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
  return freed_by_worker(std::make_unique<collective::Seals>(common_.mode, std::move(by_rank)),
                         room_);
}

std::optional<command::Request> GroupKeys::supply(std::uint64_t group_handle, std::uint8_t lane,
                                                  const collective::KeyWish& wish) {
  if (lane >= common_.lanes || wish.rank >= common_.all_ranks || !has(wish.rank)) return {};
  security::KeyChain& chain = link(lane, wish.rank)->chains->of(wish.direction);
  if (chain.generation() != wish.generation) return {};
  command::Request request;
  request.type = command::RequestType::kSupplyKey;
  request.group_handle = group_handle;
  request.wish = wish;
  request.key = std::make_shared<PacketKey>(common_.mode, chain.next());
  return request;
}

}  // namespace gradwire::control
