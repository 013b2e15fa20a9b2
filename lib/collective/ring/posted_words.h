// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Up to which op all ranks have posted, as far as this rank knows. Each acknowledgement says it to
/// the rank before: the last rank begins with what it has posted itself; each one before it says
/// the lower of that and of its own; so rank 0 comes to know what all have posted, and that goes on
/// the same way, to the last rank first. All numbers only rise, so a word that is lost is made good
/// by any later one. One lane owns it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/planted_bug.h"

namespace gradwire::collective {

/// What a rank says of itself and of those after it.
struct PostedWords {
  std::uint64_t here = 0;      ///< posted by this rank
  std::uint64_t onwards = 0;   ///< by this rank and all after it, up to the last
  std::uint64_t everyone = 0;  ///< by all ranks
};

class PostedByAll {
 public:
  PostedByAll(std::uint16_t rank, std::uint16_t nranks) noexcept
      : first_(rank == 0), last_(rank + 1 == nranks) {}

  /// The next rank's words. @return whether they are news.
  bool hear(std::uint64_t onwards, std::uint64_t everyone) noexcept {
    const bool news = onwards > onwards_ || everyone > everyone_;
    onwards_ = std::max(onwards_, onwards);
    everyone_ = std::max(everyone_, everyone);
    return news;
  }
  /// @param agreed  up to which op the next rank has called what this one has: no word goes on of
  ///                ops of which that is not known.
  [[nodiscard]] PostedWords words(std::uint64_t posted, std::uint64_t agreed) const noexcept {
    const std::uint64_t onwards = last_ || planted(PlantedBug::kPostedWordRunsAhead)
                                      ? posted
                                      : std::min({posted, onwards_, agreed});
    return {posted, onwards, first_ ? std::max(onwards, everyone_) : everyone_};
  }
  /// As the next rank said: up to which op it and all after it have posted.
  [[nodiscard]] std::uint64_t heard_onwards() const noexcept { return onwards_; }

 private:
  bool first_;
  bool last_;
  std::uint64_t onwards_ = 0;   ///< as the next rank said
  std::uint64_t everyone_ = 0;  ///< as the next rank said
};

}  // namespace gradwire::collective
