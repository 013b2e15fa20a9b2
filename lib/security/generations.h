// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which keys a lane has for the packets of a link, by generation: doc/security.md, Generations.
/// A lane owns both classes. It gets keys that the control thread made, and gives back those that
/// are done with, since only that may free them; nothing here allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/require.h"
#include "security/packet_key.h"

namespace gradwire::security {

/// So many packets have a key: 2^22. Simulations have fewer.
inline constexpr unsigned kGenerationBits = 22;

/// What both directions have: keys of so many generations in a row, and the need of the one that
/// comes after the current or newest, `at_`.
template <std::size_t kKeys>
class KeyRow {
 public:
  /// Whether the key of generation wanted() is to be supplied.
  [[nodiscard]] bool wants() const noexcept { return supplied_ < at_ + 1; }
  [[nodiscard]] std::uint64_t wanted() const noexcept { return supplied_ + 1; }
  /// @param next  of generation wanted(); only if wants().
  /// @return the one in whose place it comes, to be freed elsewhere.
  [[nodiscard]] PacketKey supply(PacketKey next) noexcept {
    require(wants(), "a key is supplied if it is wanted");
    ++supplied_;
    return std::exchange(keys_[supplied_ % kKeys], std::move(next));
  }

 protected:
  KeyRow(PacketKey zeroth, PacketKey first, unsigned bits) noexcept
      : keys_{std::move(zeroth), std::move(first)}, bits_(bits) {}
  [[nodiscard]] PacketKey& key_of(std::uint64_t generation) noexcept {
    return keys_[generation % kKeys];
  }

  std::array<PacketKey, kKeys> keys_;  // by generation % kKeys
  unsigned bits_;
  std::uint64_t at_ = 0;
  std::uint64_t supplied_ = 1;  // the newest, at most at_ + 1
};

/// For what is sent: the current generation's key, and the next one's.
class SendGenerations : public KeyRow<2> {
 public:
  SendGenerations(PacketKey zeroth, PacketKey first, unsigned bits = kGenerationBits) noexcept
      : KeyRow(std::move(zeroth), std::move(first), bits) {}

  /// Whether of() would give a key for a packet of that number.
  [[nodiscard]] bool has(std::uint64_t number) const noexcept {
    const std::uint64_t generation = number >> bits_;
    return generation == at_ || (generation == at_ + 1 && !wants());
  }
  /// @param number  of this generation or the next.
  /// @return null if that key is not there yet: nothing may be sent by the link until it is.
  [[nodiscard]] PacketKey* of(std::uint64_t number) noexcept {
    const std::uint64_t generation = number >> bits_;
    require(generation >= at_, "packet numbers rise");
    if (generation > at_ + 1) return nullptr;
    PacketKey& key = key_of(generation);
    if (!key || (generation != at_ && wants())) return nullptr;
    at_ = generation;
    return &key;
  }
};

/// For what is received: the newest generation of which a packet was authenticated, the one before
/// and the one after.
class ReceiveGenerations : public KeyRow<3> {
 public:
  ReceiveGenerations(PacketKey zeroth, PacketKey first, unsigned bits = kGenerationBits) noexcept
      : KeyRow(std::move(zeroth), std::move(first), bits) {}

  /// @return null if it is of none of the three, or the next one's key is not there yet.
  [[nodiscard]] PacketKey* of(std::uint64_t number) noexcept {
    const std::uint64_t generation = number >> bits_;
    if (generation > supplied_ || generation + 1 < at_) return nullptr;
    return &key_of(generation);
  }
  /// The packet's tag fitted with of(number).
  void authenticated(std::uint64_t number) noexcept {
    const std::uint64_t generation = number >> bits_;
    require(generation <= at_ + 1, "only the generations that of() has are authenticated");
    if (generation > at_) at_ = generation;
  }
};

}  // namespace gradwire::security
