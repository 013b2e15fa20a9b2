// SPDX-License-Identifier: BSD-3-Clause
#include "base/process_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace gradwire {

Result<ProcessLayout> ProcessLayout::make(std::span<const std::uint16_t> ranks,
                                          std::uint32_t nranks) {
  const auto bad = [](std::string text) {
    return fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  if (ranks.empty() || ranks.size() > kMaxProcesses) {
    return bad(
        fmt::format("a group of {} processes, must be 1 to {}", ranks.size(), kMaxProcesses));
  }
  ProcessLayout layout;
  layout.ranks_.assign(ranks.begin(), ranks.end());
  layout.first_.assign(std::size_t{nranks} + 1, 0);
  for (std::size_t process = 0; process < ranks.size(); ++process) {
    if (ranks[process] >= nranks) {
      return bad(
          fmt::format("process {} is at rank {}, but the group has {} ranks: ranks count "
                      "from 0",
                      process, ranks[process], nranks));
    }
    ++layout.first_[ranks[process] + 1u];
  }
  for (std::uint32_t rank = 0; rank < nranks; ++rank) {
    const std::uint32_t members = layout.first_[rank + 1];
    if (members == 0 || members > kMaxMembers) {
      return bad(
          fmt::format("rank {} has {} processes, must have 1 to {}", rank, members, kMaxMembers));
    }
    layout.first_[rank + 1] += layout.first_[rank];
  }
  std::vector<std::uint32_t> next(layout.first_.begin(), layout.first_.end() - 1);
  layout.places_.resize(ranks.size());
  layout.processes_.resize(ranks.size());
  for (std::uint32_t process = 0; process < ranks.size(); ++process) {
    const std::uint32_t place = next[ranks[process]]++;
    layout.places_[process] = place;
    layout.processes_[place] = process;
  }
  return layout;
}

bool ProcessLayout::is_plain() const noexcept {
  const std::uint16_t members = members_of(0);
  for (std::uint32_t rank = 1; rank < nranks(); ++rank) {
    if (members_of(rank) != members) return false;
  }
  return std::ranges::is_sorted(ranks_);
}

}  // namespace gradwire
