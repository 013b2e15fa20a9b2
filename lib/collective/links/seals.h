// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Keys of a group's packets on one lane, by rank, and what sealing and opening do with a frame:
/// doc/security.md, A sealed packet. A group whose mode is off has none. The control thread makes
/// it, one lane uses it; nothing here allocates after construction.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/fixed_queue.h"
#include "security/link_seal.h"
#include "wire/packet.h"
#include "wire/sealed.h"

namespace gradwire::collective {

/// The key of another generation is wanted, for what goes between this rank and that one.
struct KeyWish {
  std::uint16_t rank = 0;
  security::Direction direction{};
  std::uint64_t generation = 0;
};

class Seals {
 public:
  /// @param by_rank  [all ranks of the group]; nothing of this rank, nor of those with which it
  ///                 exchanges no packets.
  Seals(security::Mode mode, std::vector<std::unique_ptr<security::LinkSeal>> by_rank);

  [[nodiscard]] security::Mode mode() const noexcept { return mode_; }
  [[nodiscard]] bool has(std::uint16_t rank) const noexcept {
    return rank < by_rank_.size() && by_rank_[rank] != nullptr;
  }
  /// What flags a packet of the group has: CommonHeader::sealed.
  [[nodiscard]] std::uint8_t flag() const noexcept {
    return mode_ == security::Mode::kEncrypt ? wire::kEncryptedFlag : wire::kAuthenticatedFlag;
  }
  /// Whether the payload is another one when it is sealed.
  [[nodiscard]] bool encrypts() const noexcept { return mode_ == security::Mode::kEncrypt; }

  /// Whether the packet of that number, the next one, may go to that rank.
  [[nodiscard]] bool can_seal(std::uint16_t rank, std::uint64_t number) const noexcept {
    return by_rank_[rank]->can_seal(number);
  }
  /// Seals a packet that is whole, and lengthens its frame by the tag.
  /// @param frame_bytes  before the packet, which is all that is behind it. The frame's own lengths
  ///                     have the tag already.
  /// @param payload      the packet's, where it is to be read: in the frame or elsewhere. It is not
  ///                     changed elsewhere.
  void seal(std::uint16_t rank, rte_mbuf& frame, std::size_t frame_bytes,
            const std::byte* payload) noexcept;

  /// Opens a packet in place, and takes its number. Nothing is written if it is authenticated.
  /// @param packet  as received, with its tag.
  /// @return Drop::kNone, or why it was not opened: then nothing took effect.
  [[nodiscard]] wire::Drop open(const wire::CommonHeader& header,
                                std::span<std::byte> packet) noexcept;

  /// @return whether a key is wanted, which nobody was told before.
  [[nodiscard]] bool pop_wish(KeyWish& out) noexcept;
  /// @param key  what was wished for.
  /// @return the one in whose place it comes: the control thread frees it.
  [[nodiscard]] security::PacketKey supply(const KeyWish& wish, security::PacketKey key) noexcept;

  /// Of how many ranks free_some() frees keys.
  static constexpr std::size_t kFreedAtOnce = 256;
  /// Frees keys of some ranks, from the last one on; not in a lane, and none may be used any more.
  /// @return whether all are freed.
  [[nodiscard]] bool free_some() noexcept {
    by_rank_.resize(by_rank_.size() - std::min(by_rank_.size(), kFreedAtOnce));
    return by_rank_.empty();
  }

 private:
  /// After each packet.
  void note(std::uint16_t rank, security::Direction direction) noexcept;

  struct Asked {
    bool to = false;
    bool from = false;
  };
  security::Mode mode_;
  std::vector<std::unique_ptr<security::LinkSeal>> by_rank_;
  std::vector<Asked> asked_;    ///< by rank: a wish that is not fulfilled yet
  FixedQueue<KeyWish> wishes_;  ///< one of each rank and direction at most
};

}  // namespace gradwire::collective
