// SPDX-License-Identifier: BSD-3-Clause
#include "client/group_config.h"

#include <fmt/format.h>

#include <cstring>
#include <unordered_map>
#include <utility>

namespace gradwire::client {

Result<GroupConfig> config_of_processes(std::span<const ipc::RankInfo> infos,
                                        std::span<const ipc::RankInfo> folding,
                                        std::uint32_t process, std::vector<ipc::RankInfo>& table) {
  const auto refuse = [](std::string text) {
    return fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  if (process >= infos.size() + folding.size()) {
    return refuse(
        fmt::format("process is {} of {} processes and {} daemons without: it must be below their "
                    "number",
                    process, infos.size(), folding.size()));
  }
  std::unordered_map<std::uint64_t, std::uint16_t> ranks_of_daemons;
  std::vector<std::uint16_t> ranks;
  std::vector<std::uint32_t> first;  // by rank, the process that named it
  for (std::uint32_t each = 0; each < infos.size(); ++each) {
    const ipc::RankInfo& info = infos[each];
    if (info.magic != ipc::RankInfo::kMagic) {
      return refuse(
          fmt::format("the info of process {} is damaged: pass the bytes that "
                      "gw_client_describe() gave to that process, unchanged",
                      each));
    }
    const auto [found, is_new] = ranks_of_daemons.emplace(
        info.incarnation, static_cast<std::uint16_t>(ranks_of_daemons.size()));
    if (is_new) {
      if (table.size() == kMaxRanks) {
        return refuse(fmt::format("the processes are at more than {} daemons", kMaxRanks));
      }
      table.push_back(info);
      first.push_back(each);
    } else if (std::memcmp(&table[found->second], &info, sizeof info) != 0) {
      return fail(
          ErrorCode::kMismatch,
          fmt::format("processes {} and {} describe their common daemon {:016x} differently: "
                      "all processes of a group must run as one user, and one that "
                      "described its daemon before that daemon changed must do so again",
                      first[found->second], each, info.incarnation));
    }
    ranks.push_back(found->second);
  }
  auto layout = ProcessLayout::make(ranks, static_cast<std::uint32_t>(ranks_of_daemons.size()));
  if (!layout) return tl::unexpected(layout.error());
  const std::size_t with_members = table.size();
  table.insert(table.end(), folding.begin(), folding.end());
  if (table.size() > kMaxRanks) {
    return refuse(fmt::format("{} daemons, {} of them without processes: {} are allowed",
                              table.size(), folding.size(), kMaxRanks));
  }
  GroupConfig config;
  config.nranks = static_cast<std::uint16_t>(table.size());
  config.folding_ranks = static_cast<std::uint16_t>(folding.size());
  if (process >= infos.size()) {
    config.rank = static_cast<std::uint16_t>(with_members + (process - infos.size()));
    config.member_count = layout->members_of(0);
  } else {
    config.rank = ranks[process];
    config.member =
        static_cast<std::uint16_t>(layout->place_of(process) - layout->first_place(config.rank));
    config.member_count = layout->members_of(config.rank);
  }
  config.rank_infos = table;
  if (!layout->is_plain()) {
    config.layout = std::make_shared<const ProcessLayout>(std::move(*layout));
  }
  return config;
}

}  // namespace gradwire::client
