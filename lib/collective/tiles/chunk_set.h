// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A set of chunks, of 256 that follow each other. Pure; any thread.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "collective/bits.h"

namespace gradwire::collective {

class ChunkSet {
 public:
  static constexpr std::uint32_t kChunks = 256;
  using Words = std::array<std::uint64_t, kChunks / 64>;

  ChunkSet() = default;
  explicit ChunkSet(const Words& words) noexcept : words_(words) {}

  /// @param i  below kChunks, as everywhere.
  [[nodiscard]] bool has(std::uint32_t i) const noexcept { return (words_[i / 64] >> i % 64) & 1; }
  void add(std::uint32_t i) noexcept { words_[i / 64] |= std::uint64_t{1} << i % 64; }
  void remove(std::uint32_t i) noexcept { words_[i / 64] &= ~(std::uint64_t{1} << i % 64); }
  void clear() noexcept { words_ = {}; }
  [[nodiscard]] bool empty() const noexcept {
    return (words_[0] | words_[1] | words_[2] | words_[3]) == 0;
  }
  [[nodiscard]] std::uint32_t size() const noexcept {
    int count = 0;
    for (const std::uint64_t word : words_) count += std::popcount(word);
    return static_cast<std::uint32_t>(count);
  }
  /// The lowest of a set that is not empty.
  [[nodiscard]] std::uint32_t lowest() const noexcept {
    std::uint32_t word = 0;
    while (words_[word] == 0) ++word;
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(words_[word]));
  }
  /// How many there are from 0 on without a gap.
  [[nodiscard]] std::uint32_t leading() const noexcept {
    std::uint32_t count = 0;
    for (const std::uint64_t word : words_) {
      const auto ones = static_cast<std::uint32_t>(std::countr_one(word));
      count += ones;
      if (ones < 64) break;
    }
    return count;
  }
  /// Those below i alone.
  [[nodiscard]] ChunkSet below(std::uint32_t i) const noexcept {
    ChunkSet low;
    for (std::uint32_t word = 0; word < words_.size(); ++word) {
      const std::uint32_t first = word * 64;
      low.words_[word] = i <= first ? 0 : words_[word] & low_bits(i - first);
    }
    return low;
  }
  /// Without the lowest `by`, for a set that begins that much later.
  void shift(std::uint32_t by) noexcept {
    if (by < 64) {  // As it mostly is.
      if (by == 0) return;
      for (std::uint32_t word = 0; word + 1 < words_.size(); ++word) {
        words_[word] = words_[word] >> by | words_[word + 1] << (64 - by);
      }
      words_.back() >>= by;
      return;
    }
    const std::uint32_t whole = by / 64;
    const std::uint32_t rest = by % 64;
    for (std::uint32_t word = 0; word < words_.size(); ++word) {
      const std::uint64_t low = at(word + whole) >> rest;
      const std::uint64_t high = rest == 0 ? 0 : at(word + whole + 1) << (64 - rest);
      words_[word] = low | high;
    }
  }
  ChunkSet& operator|=(const ChunkSet& other) noexcept {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  /// What is in `other` is not in it afterwards.
  ChunkSet& operator-=(const ChunkSet& other) noexcept {
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= ~other.words_[i];
    return *this;
  }
  [[nodiscard]] const Words& words() const noexcept { return words_; }

 private:
  [[nodiscard]] std::uint64_t at(std::size_t word) const noexcept {
    return word < words_.size() ? words_[word] : 0;
  }

  Words words_{};
};

}  // namespace gradwire::collective
