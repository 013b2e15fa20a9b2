// SPDX-License-Identifier: BSD-3-Clause
// The C interface: groups.
#include "client/capi/capi_support.h"

using namespace gradwire;
using namespace gradwire::client;

namespace {

/// Copied, because the caller's bytes need not be aligned like the struct.
std::vector<ipc::RankInfo> infos_of(const void* bytes, std::size_t count) {
  std::vector<ipc::RankInfo> infos(count);
  if (count != 0) std::memcpy(infos.data(), bytes, count * sizeof(ipc::RankInfo));
  return infos;
}

/// @param given  the caller's struct.
template <class Config>
Result<void> join(gw_client& handle, const client::GroupConfig& config, const Config& given,
                  gw_group** group) {
  const auto wants = client::JobWants::of(given.security, given.job_key, given.job_key_bytes);
  if (!wants) return tl::unexpected(wants.error());
  auto result = handle.client->join(config, *wants);
  if (!result) return tl::unexpected(result.error());
  (*result)->self = *result;
  *group = result->get();
  return {};
}

Result<void> check_flags(std::uint32_t flags, const char* of) {
  constexpr std::uint32_t known = GW_GROUP_TRANSFERS_ALONE;
  if ((flags & ~known) == 0) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}.flags is {:#x}: gradwire {} knows {:#x}, GW_GROUP_TRANSFERS_ALONE",
                          of, flags, GRADWIRE_VERSION, known));
}

}  // namespace

extern "C" {

gw_status gw_group_join(gw_client* handle, const gw_group_config* config, gw_group** group) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    if (config == nullptr) return null_argument("config");
    if (group == nullptr) return null_argument("group");
    if (is_forked(handle)) return forked();
    const auto given = read_struct(config, offsetof(gw_group_config, security), "gw_group_config");
    if (!given) return tl::unexpected(given.error());
    if (auto known = check_flags(given->flags, "gw_group_config"); !known) return known;
    if (given->rank_infos == nullptr) return null_argument("rank_infos");
    if (given->rank_infos_bytes != std::uint64_t{given->nranks} * GW_RANK_INFO_BYTES) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "rank_infos_bytes is {}: for nranks = {} it must be nranks x GW_RANK_INFO_BYTES, {}",
              given->rank_infos_bytes, given->nranks,
              std::uint64_t{given->nranks} * GW_RANK_INFO_BYTES));
    }
    const auto timeout = bounded(given->timeout_ms, 30000, kMaxTimeoutMs, "timeout_ms");
    if (!timeout) return tl::unexpected(timeout.error());
    const std::vector<ipc::RankInfo> infos = infos_of(given->rank_infos, given->nranks);
    client::GroupConfig known;
    known.key = GroupKey{given->group_id, given->epoch};
    known.rank = given->rank;
    known.nranks = given->nranks;
    known.folding_ranks = given->folding_ranks;
    known.transfers_alone = (given->flags & GW_GROUP_TRANSFERS_ALONE) != 0;
    known.member = given->member;
    known.member_count = given->member_count == 0 ? std::uint16_t{1} : given->member_count;
    known.timeout = std::chrono::milliseconds(*timeout);
    known.rank_infos = infos;
    return join(*handle, known, *given, group);
  });
}

gw_status gw_group_join_processes(gw_client* handle, const gw_processes_config* config,
                                  gw_group** group) {
  return guarded([&]() -> Result<void> {
    if (handle == nullptr) return null_argument("client");
    if (config == nullptr) return null_argument("config");
    if (group == nullptr) return null_argument("group");
    if (is_forked(handle)) return forked();
    const auto given =
        read_struct(config, offsetof(gw_processes_config, folding_infos), "gw_processes_config");
    if (!given) return tl::unexpected(given.error());
    if (auto known = check_flags(given->flags, "gw_processes_config"); !known) return known;
    if (given->infos == nullptr) return null_argument("infos");
    if (given->processes < 1 || given->processes > kMaxProcesses) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("processes is {}: it must be 1 to {}",
                                                           given->processes, kMaxProcesses));
    }
    if (given->infos_bytes != std::uint64_t{given->processes} * GW_RANK_INFO_BYTES) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("infos_bytes is {}: for processes = {} it must be processes x "
                              "GW_RANK_INFO_BYTES, {}",
                              given->infos_bytes, given->processes,
                              std::uint64_t{given->processes} * GW_RANK_INFO_BYTES));
    }
    const auto timeout = bounded(given->timeout_ms, 30000, kMaxTimeoutMs, "timeout_ms");
    if (!timeout) return tl::unexpected(timeout.error());
    const std::uint64_t folding = given->folding_infos_bytes / GW_RANK_INFO_BYTES;
    if (given->folding_infos == nullptr && folding != 0) return null_argument("folding_infos");
    if (given->folding_infos_bytes % GW_RANK_INFO_BYTES != 0 || folding > kMaxRanks) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("folding_infos_bytes is {}: it must be a multiple of "
                              "GW_RANK_INFO_BYTES, {}, at most {} times that",
                              given->folding_infos_bytes, GW_RANK_INFO_BYTES, kMaxRanks));
    }
    std::vector<ipc::RankInfo> table;
    auto known =
        client::config_of_processes(infos_of(given->infos, given->processes),
                                    infos_of(given->folding_infos, folding), given->process, table);
    if (!known) return tl::unexpected(known.error());
    known->key = GroupKey{given->group_id, given->epoch};
    known->timeout = std::chrono::milliseconds(*timeout);
    known->transfers_alone = (given->flags & GW_GROUP_TRANSFERS_ALONE) != 0;
    return join(*handle, *known, *given, group);
  });
}

gw_status gw_group_get_info(const gw_group* group, gw_group_info* info) {
  return guarded([&]() -> Result<void> {
    if (group == nullptr) return null_argument("group");
    if (is_forked(group)) return forked();
    const client::GroupConfig& config = group->config;
    gw_group_info value{};
    value.process = config.folds_only() ? GW_NO_PROCESS : config.process();
    value.processes = config.processes().count();
    value.rank = config.rank;
    value.nranks = config.nranks;
    value.member = config.member;
    value.member_count = config.member_count;
    return write_struct(value, info, "gw_group_info");
  });
}

int32_t gw_group_rank_of(const gw_group* group, uint32_t process) {
  if (group == nullptr || is_forked(group)) return -1;
  const GroupProcesses processes = group->config.processes();
  return process < processes.count() ? processes.rank_of(process) : -1;
}

gw_status gw_group_leave(gw_group* group) {
  return guarded([&]() -> Result<void> {
    if (group == nullptr) return null_argument("group");
    if (is_forked(group)) return forked();
    return group->client->leave(*group);
  });
}

gw_status gw_group_abort(gw_group* group, const char* reason) {
  return guarded([&]() -> Result<void> {
    if (group == nullptr) return null_argument("group");
    if (is_forked(group)) return forked();
    return group->client->abort(*group, reason == nullptr ? "" : reason);
  });
}

gw_status gw_group_error(gw_group* group) {
  return guarded([&]() -> Result<void> {
    if (group == nullptr) return null_argument("group");
    if (is_forked(group)) return forked();
    return group->client->group_error(*group);
  });
}

void gw_group_free(gw_group* group) {
  if (group == nullptr || is_forked(group)) return;
  guarded([&]() -> Result<void> {
    const std::shared_ptr<gw_group> last = std::move(group->self);
    last->client->release(*last);
    return {};
  });
}

}  // extern "C"
