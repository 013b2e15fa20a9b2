// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What both directions between two ranks on a lane begin with: doc/security.md, Keys of a link.
/// Pure but for secret memory, which it allocates; not on a lane.
#pragma once

#include <cstdint>
#include <memory>

#include "security/key_schedule.h"
#include "security/link_seal.h"

namespace gradwire::security {

/// Keys of further generations, for whoever makes them: not the lane.
struct LinkChains : InSecretMemory {
  LinkChains(KeyChain to_rank, KeyChain from_rank) : to(to_rank), from(from_rank) {}
  [[nodiscard]] KeyChain& of(Direction direction) noexcept {
    return direction == Direction::kTo ? to : from;
  }
  KeyChain to;
  KeyChain from;
};

struct LinkStart {
  std::uint64_t token_to = 0;
  std::uint64_t token_from = 0;
  LinkKeys keys;                       ///< generations 0 and 1
  std::unique_ptr<LinkChains> chains;  ///< from generation 2 on
};

/// @param root  of the two daemons.
/// @param to    of packets from this rank to the other.
[[nodiscard]] LinkStart start_link(const Secret32& root, const LinkContext& to,
                                   const Sha256& table_hash);

}  // namespace gradwire::security
