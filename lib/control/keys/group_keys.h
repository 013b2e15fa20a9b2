// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The keys of a group's links on this daemon: doc/security.md, Keys of a link. A worker makes
/// them (KeyMaking); from then on the control thread owns them, and asks for the next generation's.
/// All of it lies in secret memory; it allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/types.h"
#include "collective/links/seals.h"
#include "collective/shard_config.h"
#include "security/key_schedule.h"
#include "security/link_seal.h"

namespace gradwire::control {

/// What the links of a group have in common.
struct LinkCommon {
  GroupKey group;
  security::Mode mode = security::Mode::kEncrypt;
  std::uint8_t lanes = 1;
  std::uint16_t rank = 0;       ///< this daemon's
  std::uint16_t all_ranks = 1;  ///< of the group
  std::uint64_t incarnation = 0;
  security::Sha256 table_hash{};
};

class GroupKeys {
 public:
  explicit GroupKeys(const LinkCommon& common)
      : common_(common), links_(std::size_t{common.lanes} * common.all_ranks) {}

  /// Makes the keys of all lanes' links to and from a rank.
  /// @param root  of this daemon and that rank's.
  void add(std::uint16_t rank, std::uint64_t incarnation, const security::Secret32& root);

  [[nodiscard]] const LinkCommon& common() const noexcept { return common_; }
  /// Whether packets go between this rank and that one.
  [[nodiscard]] bool has(std::uint16_t rank) const noexcept { return link(0, rank) != nullptr; }
  /// Of a rank that it has.
  [[nodiscard]] collective::LinkTokens tokens(std::uint8_t lane,
                                              std::uint16_t rank) const noexcept {
    return link(lane, rank)->tokens;
  }
  /// The keys that a link begins with: of hellos, and of generations 0 and 1. Once for each.
  [[nodiscard]] std::unique_ptr<security::LinkSeal> make_seal(std::uint8_t lane,
                                                              std::uint16_t rank);
  /// Those of all links of a lane.
  [[nodiscard]] std::shared_ptr<collective::Seals> make_seals(std::uint8_t lane);
  /// The key of the generation that comes next: 2 is the first.
  [[nodiscard]] security::PacketKey next(std::uint8_t lane, std::uint16_t rank,
                                         security::Direction direction);
  /// Which one next() gives.
  [[nodiscard]] std::uint64_t generation(std::uint8_t lane, std::uint16_t rank,
                                         security::Direction direction) const noexcept;

 private:
  struct Chains : security::InSecretMemory {
    Chains(const security::KeyChain& to_rank, const security::KeyChain& from_rank)
        : to(to_rank), from(from_rank) {}
    security::KeyChain to;
    security::KeyChain from;
  };
  struct Link {
    collective::LinkTokens tokens;
    security::LinkKeys keys;  ///< until a lane has them
    std::unique_ptr<Chains> chains;
  };
  [[nodiscard]] Link* link(std::uint8_t lane, std::uint16_t rank) const noexcept {
    return links_[std::size_t{lane} * common_.all_ranks + rank].get();
  }
  [[nodiscard]] security::KeyChain& chain(std::uint8_t lane, std::uint16_t rank,
                                          security::Direction direction) const noexcept {
    Chains& chains = *link(lane, rank)->chains;
    return direction == security::Direction::kTo ? chains.to : chains.from;
  }

  LinkCommon common_;
  std::vector<std::unique_ptr<Link>> links_;  ///< by lane, then rank; null: no packets go there
};

}  // namespace gradwire::control
