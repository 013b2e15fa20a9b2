// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The keys of a group's links on this daemon: doc/security.md, Keys of a link. A worker makes
/// them (KeyMaking); from then on the control thread owns them, and asks for the next generation's.
/// All of it lies in secret memory; it allocates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/types.h"
#include "collective/links/seals.h"
#include "collective/shard_config.h"
#include "command/messages.h"
#include "control/keys/key_memory.h"
#include "security/key_schedule.h"
#include "security/link_start.h"

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
  /// Of one link's keys in all, lane's and control thread's, with some room to spare; a test counts
  /// them.
  [[nodiscard]] static std::uint64_t link_bytes() noexcept {
    // A hello's each way, two generations to the rank and three from there, and each way one more
    // that is on its way to the lane, or back.
    constexpr std::uint64_t kPacketKeys = 9;
    constexpr std::uint64_t kOthers = 2'048;  // LinkSeal, LinkStart, LinkChains: some 1,600
    return kPacketKeys * security::packet_key_bytes() + kOthers;
  }

  /// @param room  of what it makes; nullptr: their memory is not counted.
  explicit GroupKeys(const LinkCommon& common, KeyRoomPtr room = nullptr)
      : common_(common),
        room_(std::move(room)),
        links_(std::size_t{common.lanes} * common.all_ranks) {}

  /// Makes the keys of all lanes' links to and from a rank.
  /// @param root  of this daemon and that rank's.
  void add(std::uint16_t rank, std::uint64_t incarnation, const security::Secret32& root);

  [[nodiscard]] const LinkCommon& common() const noexcept { return common_; }
  /// Whether packets go between this rank and that one.
  [[nodiscard]] bool has(std::uint16_t rank) const noexcept { return link(0, rank) != nullptr; }
  /// The rank is one that it has.
  [[nodiscard]] collective::LinkTokens tokens(std::uint8_t lane,
                                              std::uint16_t rank) const noexcept {
    return {link(lane, rank)->token_to, link(lane, rank)->token_from};
  }
  /// The keys that a link begins with: of hellos, and of generations 0 and 1. Once for each.
  [[nodiscard]] std::unique_ptr<security::LinkSeal> make_seal(std::uint8_t lane,
                                                              std::uint16_t rank);
  /// Those of all links of a lane.
  [[nodiscard]] std::shared_ptr<collective::Seals> make_seals(std::uint8_t lane);
  /// What gives a lane the key that it wishes for: each once, and one generation after the other
  /// from 2 on.
  /// @return nothing if that is not the next one of a link of this group.
  [[nodiscard]] std::optional<command::Request> supply(std::uint64_t group_handle,
                                                       std::uint8_t lane,
                                                       const collective::KeyWish& wish);

  /// Frees some of them, from the last link on; none may be used any more.
  /// @return whether all are.
  [[nodiscard]] bool free_some() noexcept {
    links_.resize(links_.size() - std::min(links_.size(), collective::Seals::kFreedAtOnce));
    return links_.empty();
  }

 private:
  [[nodiscard]] security::LinkStart* link(std::uint8_t lane, std::uint16_t rank) const noexcept {
    return links_[std::size_t{lane} * common_.all_ranks + rank].get();
  }

  LinkCommon common_;
  KeyRoomPtr room_;
  /// By lane, then rank; null: no packets go there. The keys are there until a lane has them.
  std::vector<std::unique_ptr<security::LinkStart>> links_;
};

}  // namespace gradwire::control
