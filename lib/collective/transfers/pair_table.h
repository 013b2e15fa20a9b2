// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What is known of ordered pairs of processes, by the pair. A pair that was entered stays for the
/// life of the group, since its sequence does. One lane owns it; it allocates at construction only.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/require.h"
#include "wire/packet.h"

namespace gradwire::collective {

template <class Pair>
class PairTable {
 public:
  /// @param most  pairs, 1 or more.
  explicit PairTable(std::uint32_t most)
      : most_(most), slots_(std::bit_ceil(std::size_t{most} * 2), kNone) {
    pairs_.reserve(most);
  }

  [[nodiscard]] std::uint32_t size() const noexcept {
    return static_cast<std::uint32_t>(pairs_.size());
  }
  [[nodiscard]] Pair& operator[](std::uint32_t index) noexcept { return pairs_[index]; }
  [[nodiscard]] const Pair& operator[](std::uint32_t index) const noexcept { return pairs_[index]; }
  [[nodiscard]] std::uint32_t index_of(const Pair& pair) const noexcept {
    return static_cast<std::uint32_t>(&pair - pairs_.data());
  }
  /// nullptr if it was not entered.
  [[nodiscard]] Pair* find(const wire::ProcessPair& pair) noexcept {
    const std::uint32_t index = slots_[slot_of(pair)];
    return index == kNone ? nullptr : &pairs_[index];
  }
  [[nodiscard]] const Pair* find(const wire::ProcessPair& pair) const noexcept {
    const std::uint32_t index = slots_[slot_of(pair)];
    return index == kNone ? nullptr : &pairs_[index];
  }
  /// Enters it if need be. @return nullptr if there is no room.
  [[nodiscard]] Pair* enter(const wire::ProcessPair& pair, std::uint16_t rank) noexcept {
    const std::size_t slot = slot_of(pair);
    if (slots_[slot] != kNone) return &pairs_[slots_[slot]];
    if (pairs_.size() == most_) return nullptr;
    slots_[slot] = size();
    pairs_.emplace_back();
    pairs_.back().pair = pair;
    pairs_.back().rank = rank;
    return &pairs_.back();
  }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;

  /// Where it is, or the free slot where it would be: there are twice as many as pairs.
  [[nodiscard]] std::size_t slot_of(const wire::ProcessPair& pair) const noexcept {
    const std::uint64_t key =
        std::uint64_t{pair.stream} << 32 | std::uint64_t{pair.source} << 16 | pair.destination;
    std::size_t slot = (key * 0x9e3779b97f4a7c15u) >> 32 & (slots_.size() - 1);
    while (slots_[slot] != kNone && !(pairs_[slots_[slot]].pair == pair)) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  std::size_t most_;
  std::vector<Pair> pairs_;
  std::vector<std::uint32_t> slots_;
};

}  // namespace gradwire::collective
