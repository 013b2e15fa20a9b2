// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which processes of a group are at which rank. A process has the number that its user gave it, by
/// which calls name roots and blocks; and a place in ring order, by which chunks travel: rank by
/// rank, and in each rank by number. A rank's members are its processes in that order. Any thread;
/// nothing here allocates but ProcessLayout::make().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/types.h"

namespace gradwire {

/// Of a group whose processes are not numbered rank by rank, or whose ranks differ in size.
class ProcessLayout {
 public:
  /// @param ranks  [processes], 1 to kMaxProcesses: the rank of each, below `nranks`.
  /// @return an error that names a rank that has no process, or more than kMaxMembers.
  [[nodiscard]] static Result<ProcessLayout> make(std::span<const std::uint16_t> ranks,
                                                  std::uint32_t nranks);

  [[nodiscard]] std::uint32_t nranks() const noexcept {
    return static_cast<std::uint32_t>(first_.size() - 1);
  }
  [[nodiscard]] std::uint32_t processes() const noexcept {
    return static_cast<std::uint32_t>(ranks_.size());
  }
  [[nodiscard]] std::span<const std::uint16_t> ranks() const noexcept { return ranks_; }
  /// Whether every rank has as many, and they are numbered rank by rank: no layout is needed.
  [[nodiscard]] bool is_plain() const noexcept;
  [[nodiscard]] std::uint16_t members_of(std::uint32_t rank) const noexcept {
    return static_cast<std::uint16_t>(first_[rank + 1] - first_[rank]);
  }
  [[nodiscard]] std::uint32_t first_place(std::uint32_t rank) const noexcept {
    return first_[rank];
  }
  [[nodiscard]] std::uint16_t rank_of(std::uint32_t process) const noexcept {
    return ranks_[process];
  }
  [[nodiscard]] std::uint32_t place_of(std::uint32_t process) const noexcept {
    return places_[process];
  }
  [[nodiscard]] std::uint32_t process_at(std::uint32_t place) const noexcept {
    return processes_[place];
  }

 private:
  std::vector<std::uint16_t> ranks_;      // by process
  std::vector<std::uint32_t> places_;     // by process
  std::vector<std::uint32_t> processes_;  // by place
  std::vector<std::uint32_t> first_;      // [nranks + 1]: the place of a rank's first member
};

/// The same questions of any group.
struct GroupProcesses {
  std::uint16_t nranks = 1;
  std::uint16_t members = 1;              ///< of each rank, if there is no layout
  const ProcessLayout* layout = nullptr;  ///< nullptr: rank x members + member is a process

  [[nodiscard]] constexpr std::uint32_t count() const noexcept {
    return layout == nullptr ? std::uint32_t{nranks} * members : layout->processes();
  }
  [[nodiscard]] constexpr bool one_each() const noexcept { return count() == nranks; }
  [[nodiscard]] constexpr std::uint16_t members_of(std::uint32_t rank) const noexcept {
    return layout == nullptr ? members : layout->members_of(rank);
  }
  [[nodiscard]] constexpr std::uint32_t first_place(std::uint32_t rank) const noexcept {
    return layout == nullptr ? rank * members : layout->first_place(rank);
  }
  [[nodiscard]] constexpr std::uint16_t rank_of(std::uint32_t process) const noexcept {
    return layout == nullptr ? static_cast<std::uint16_t>(process / members)
                             : layout->rank_of(process);
  }
  [[nodiscard]] constexpr std::uint16_t member_of(std::uint32_t process) const noexcept {
    return static_cast<std::uint16_t>(layout == nullptr ? process % members
                                                        : layout->place_of(process) -
                                                              first_place(rank_of(process)));
  }
  [[nodiscard]] constexpr std::uint32_t process_at(std::uint32_t place) const noexcept {
    return layout == nullptr ? place : layout->process_at(place);
  }
  [[nodiscard]] constexpr std::uint32_t process_of(std::uint32_t rank,
                                                   std::uint32_t member) const noexcept {
    return process_at(first_place(rank) + member);
  }
};

}  // namespace gradwire
