// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which keys a lane has for the packets of a link, by generation: doc/security.md, Generations.
/// A lane owns both classes. It gets keys that the control thread made, and gives back those that
/// are done with, since only that may free them; nothing here allocates.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "base/require.h"
#include "security/packet_key.h"

namespace gradwire::security {

/// So many packets have a key: 2^22. Simulations have fewer.
inline constexpr unsigned kGenerationBits = 22;

/// For what is sent: the current generation's key, and the next one's.
class SendGenerations {
 public:
  SendGenerations(PacketKey zeroth, PacketKey first, unsigned bits = kGenerationBits) noexcept
      : keys_{std::move(zeroth), std::move(first)}, bits_(bits) {}

  /// @param number  of this generation or the next.
  /// @return null if that key is not there yet: nothing may be sent by the link until it is.
  [[nodiscard]] PacketKey* of(std::uint64_t number) noexcept {
    const std::uint64_t generation = number >> bits_;
    require(generation >= current_, "packet numbers rise");
    if (generation > current_ + 1) return nullptr;
    PacketKey& key = keys_[generation % 2];
    if (!key || (generation != current_ && wants())) return nullptr;
    current_ = generation;
    return &key;
  }
  /// Whether the key of generation wanted() is to be supplied.
  [[nodiscard]] bool wants() const noexcept { return supplied_ < current_ + 1; }
  [[nodiscard]] std::uint64_t wanted() const noexcept { return supplied_ + 1; }
  /// @param next  of generation wanted(); only if wants().
  /// @return the one in whose place it comes, to be freed elsewhere.
  [[nodiscard]] PacketKey supply(PacketKey next) noexcept {
    require(wants(), "a key is supplied if it is wanted");
    ++supplied_;
    return std::exchange(keys_[supplied_ % 2], std::move(next));
  }

 private:
  std::array<PacketKey, 2> keys_;  // by generation % 2
  unsigned bits_;
  std::uint64_t current_ = 0;
  std::uint64_t supplied_ = 1;  // the newest
};

/// For what is received: the newest generation of which a packet was authenticated, the one before
/// and the one after.
class ReceiveGenerations {
 public:
  ReceiveGenerations(PacketKey zeroth, PacketKey first, unsigned bits = kGenerationBits) noexcept
      : keys_{std::move(zeroth), std::move(first), PacketKey()}, bits_(bits) {}

  /// @return null if it is of none of the three, or the next one's key is not there yet.
  [[nodiscard]] PacketKey* of(std::uint64_t number) noexcept {
    const std::uint64_t generation = number >> bits_;
    if (generation > supplied_ || generation + 1 < newest_) return nullptr;
    return &keys_[generation % 3];
  }
  /// The packet's tag fitted with of(number).
  void authenticated(std::uint64_t number) noexcept {
    const std::uint64_t generation = number >> bits_;
    require(generation <= newest_ + 1, "only the generations that of() has are authenticated");
    if (generation > newest_) newest_ = generation;
  }
  /// As those of SendGenerations.
  [[nodiscard]] bool wants() const noexcept { return supplied_ < newest_ + 1; }
  [[nodiscard]] std::uint64_t wanted() const noexcept { return supplied_ + 1; }
  [[nodiscard]] PacketKey supply(PacketKey next) noexcept {
    require(wants(), "a key is supplied if it is wanted");
    ++supplied_;
    return std::exchange(keys_[supplied_ % 3], std::move(next));
  }

 private:
  std::array<PacketKey, 3> keys_;  // by generation % 3
  unsigned bits_;
  std::uint64_t newest_ = 0;
  std::uint64_t supplied_ = 1;  // at most newest_ + 1
};

}  // namespace gradwire::security
