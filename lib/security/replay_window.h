// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which packet numbers of a link were taken (RFC 6479): each is taken once. One lane owns it;
/// a kilobyte, and nothing is allocated.
#pragma once

#include <array>
#include <cstdint>

namespace gradwire::security {

class ReplayWindow {
 public:
  static constexpr std::uint64_t kNumbers = 8192;
  enum class Verdict : std::uint8_t { kNew, kSeen, kOld };

  /// Changes nothing: asked before the tag is looked at.
  [[nodiscard]] Verdict look(std::uint64_t number) const noexcept {
    if (number > newest_) return Verdict::kNew;
    if (newest_ - number >= kNumbers) return Verdict::kOld;
    return (word(number) >> number % 64 & 1) != 0 ? Verdict::kSeen : Verdict::kNew;
  }
  /// The tag fitted. @param number  is kNew.
  void take(std::uint64_t number) noexcept {
    if (number > newest_) {
      const std::uint64_t first = newest_ / 64 + 1;
      const std::uint64_t last = number / 64;
      // Words that come round again are empty, all of them at most.
      const std::uint64_t from =
          last - first >= kWords && last >= first ? last - kWords + 1 : first;
      for (std::uint64_t w = from; w <= last; ++w) words_[w % kWords] = 0;
      newest_ = number;
    }
    words_[number / 64 % kWords] |= std::uint64_t{1} << number % 64;
  }
  [[nodiscard]] std::uint64_t newest() const noexcept { return newest_; }

 private:
  // One more than the numbers fill: the newest word is cleared when its first number comes.
  static constexpr std::uint64_t kWords = kNumbers / 64 + 1;
  [[nodiscard]] std::uint64_t word(std::uint64_t number) const noexcept {
    return words_[number / 64 % kWords];
  }

  std::uint64_t newest_ = 0;  // 0: none; no packet has that number
  std::array<std::uint64_t, kWords> words_{};
};

}  // namespace gradwire::security
