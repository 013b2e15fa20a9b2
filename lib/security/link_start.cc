// SPDX-License-Identifier: BSD-3-Clause
#include "security/link_start.h"

#include <utility>

namespace gradwire::security {

LinkStart start_link(const Secret32& root, const LinkContext& to, const Sha256& table_hash) {
  LinkContext from = to;
  std::swap(from.from_rank, from.to_rank);
  std::swap(from.from_incarnation, from.to_incarnation);
  const OpeningKeys opens_to = opening_keys(root, to);
  const OpeningKeys opens_from = opening_keys(root, from);
  LinkStart start;
  start.token_to = opens_to.token;
  start.token_from = opens_from.token;
  start.chains.reset(
      new LinkChains(KeyChain(root, to, table_hash), KeyChain(root, from, table_hash)));
  start.keys.hello_to = PacketKey(to.mode, opens_to.hello);
  start.keys.hello_from = PacketKey(to.mode, opens_from.hello);
  for (PacketKey& key : start.keys.to) key = PacketKey(to.mode, start.chains->to.next());
  for (PacketKey& key : start.keys.from) key = PacketKey(to.mode, start.chains->from.next());
  return start;
}

}  // namespace gradwire::security
