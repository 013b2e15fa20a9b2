// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/entries.h"

#include <fmt/format.h>

#include "control/bodies.h"
#include "control/formation/table.h"
#include "security/files/key_bytes.h"

namespace gradwire::control {
namespace {

// A step is about a microsecond's work.
constexpr std::uint64_t kMacSteps = 4;
constexpr std::uint64_t kNewKeySteps = 64;

}  // namespace

Entries::Entries(const ManagerOptions& options, const LaneControl& lanes, DaemonKeys& keys,
                 Replies& replies, WorkMeter& work)
    : options_(options),
      keys_(keys),
      replies_(replies),
      work_(work),
      own_(make_rank_info(options.daemon, lanes.lanes(), lanes.addresses())) {}

ipc::RankInfo Entries::without_keys(uid_t uid) const {
  ipc::RankInfo info = own_;
  info.secret = secret_for(options_.daemon.secret, uid);
  info.checksum = checksum_of(info);
  return info;
}

void Entries::describe(const PendingReply& to, uid_t uid, Client* client,
                       std::span<const std::byte> body) {
  ipc::DescribeRequest wanted;
  if (!body.empty()) {
    const auto given = ipc::body_as<ipc::DescribeRequest>(body);
    if (!given) return replies_.error(to, wrong_size<ipc::DescribeRequest>(to.type, body));
    wanted = *given;
  }
  const auto entry = entry_for(uid, client, wanted);
  security::clear(std::as_writable_bytes(std::span(wanted.job_key)));
  if (!entry) return replies_.error(to, entry.error());
  replies_.send(to, ipc::bytes_of(*entry));
}

Result<ipc::RankInfo> Entries::entry_for(uid_t uid, Client* client,
                                         const ipc::DescribeRequest& wanted) {
  if (wanted.mode > ipc::WantedMode::kEncrypt || wanted.has_job_key > 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'describe' with security {} and {} keys of the job, must be 0 to {} "
                            "and 0 or 1",
                            static_cast<std::uint32_t>(wanted.mode), wanted.has_job_key,
                            static_cast<std::uint32_t>(ipc::WantedMode::kEncrypt)));
  }
  const security::Mode mode = mode_of(wanted.mode, keys_.mode());
  if (std::string why = keys_.why_not(mode); !why.empty()) {
    return fail(ErrorCode::kUnsupported, std::move(why));
  }
  security::KeyId job{};
  if (wanted.has_job_key != 0) {
    const auto taken = take_job_key(client, wanted);
    if (!taken) return tl::unexpected(taken.error());
    job = *taken;
  }
  ipc::RankInfo info = without_keys(uid);
  if (!keys_.has_keys()) return info;
  const std::uint64_t made = keys_.users().made();
  if (auto written = keys_.write(info, uid, mode, job); !written) {
    return tl::unexpected(written.error());
  }
  work_.add(kMacSteps + (keys_.users().made() - made) * kNewKeySteps);
  info.checksum = checksum_of(info);
  return info;
}

Result<security::KeyId> Entries::take_job_key(Client* client,
                                              const ipc::DescribeRequest& wanted) const {
  if (!keys_.has_keys()) {
    return fail(ErrorCode::kUnsupported,
                "the job has a key of its own, and this daemon has no cluster's key, to which that "
                "would add: set security.key_file in its configuration");
  }
  if (client == nullptr || client->open_reply) {
    return fail(ErrorCode::kInvalidArgument,
                "a job's key came before 'open' was answered on this connection");
  }
  const auto bytes = std::as_bytes(std::span(wanted.job_key));
  if (const std::string why = security::why_no_key(bytes); !why.empty()) {
    return fail(ErrorCode::kInvalidArgument, "the job's key: " + why);
  }
  const security::FileKeys keys{security::Secret32(bytes)};
  if (client->job_keys.contains(keys.id)) return keys.id;
  if (client->job_keys.size() == kJobKeysMax) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("the client has brought {} keys of jobs already", kJobKeysMax));
  }
  client->job_keys.emplace(keys.id, JobKeyPtr(new JobKey(keys)));
  return keys.id;
}

}  // namespace gradwire::control
