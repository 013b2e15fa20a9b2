// SPDX-License-Identifier: BSD-3-Clause
// Groups of a client: join, leave, abort, and events that the daemon sends about them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "client/client.h"
#include "ipc/join_message.h"
#include "status/fields.h"

namespace gradwire::client {
namespace {

using namespace std::chrono_literals;

constexpr auto kStatusBound = 200ms;
constexpr auto kLeftEarly = "the group was left before a CUDA stream had come to the op";

Result<void> check(const GroupConfig& config) {
  const auto refuse = [](std::string text) {
    return fail(ErrorCode::kInvalidArgument, std::move(text));
  };
  if (config.nranks < 1 || config.nranks > kMaxRanks) {
    return refuse(fmt::format("nranks is {}: it must be 1 to {}", config.nranks, kMaxRanks));
  }
  if (config.rank >= config.nranks) {
    return refuse(fmt::format("rank is {} of {} ranks: it must be 0 to {}", config.rank,
                              config.nranks, config.nranks - 1));
  }
  if (config.folding_ranks != 0 && config.nranks < 2 * config.folding_ranks) {
    return refuse(fmt::format("folding_ranks is {} of {} ranks: as many at least must have members",
                              config.folding_ranks, config.nranks));
  }
  if (config.member_count < 1 || config.member_count > kMaxMembers) {
    return refuse(
        fmt::format("member_count is {}: it must be 1 to {}", config.member_count, kMaxMembers));
  }
  if (config.member >= config.member_count) {
    return refuse(fmt::format("member is {} of {} members: it must be 0 to {}", config.member,
                              config.member_count, config.member_count - 1));
  }
  if (config.rank_infos.size() != config.nranks) {
    return refuse(
        fmt::format("{} rank infos for {} ranks", config.rank_infos.size(), config.nranks));
  }
  for (std::size_t i = 0; i < config.rank_infos.size(); ++i) {
    if (config.rank_infos[i].magic != ipc::RankInfo::kMagic) {
      return refuse(
          fmt::format("the rank info of rank {} is damaged: pass the bytes that "
                      "gw_client_describe() gave on that rank, unchanged",
                      i));
    }
    if (config.folding_ranks != 0 && config.rank_infos[i].folding == 0) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{} of the ranks have no members, and the daemon of rank {} knows no "
                              "such ranks: it is of an older release",
                              config.folding_ranks, i));
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<gw_group>> Client::join(const GroupConfig& config, const JobWants& wants) {
  if (auto valid = check(config); !valid) return tl::unexpected(valid.error());
  ipc::JoinWants asks;
  asks.mode = wants.mode();
  if (wants.has_key()) {
    // Only the daemon knows the key's id; and it has the key then, whoever asked for the entry.
    const auto own = describe(wants);
    if (!own) return tl::unexpected(own.error());
    asks.job = job_key_of(*own);
  }
  auto group = std::make_shared<gw_group>();
  group->client = shared_from_this();
  group->config = config;
  group->config.rank_infos = {};

  ipc::JoinRequest head;
  head.group_id = config.key.group_id;
  head.epoch = config.key.epoch;
  head.rank = config.rank;
  head.member = config.member;
  head.member_count = config.member_count;
  head.folding_ranks = config.folding_ranks;
  if (config.transfers_alone) head.flags |= ipc::JoinRequest::kTransfersAlone;
  head.timeout_ms = static_cast<std::uint32_t>(config.timeout.count());
  const std::vector<std::byte> whole = ipc::encode_join(
      head, config.rank_infos,
      config.layout ? config.layout->ranks() : std::span<const std::uint16_t>(), asks);
  std::span<const std::byte> body = whole;
  ipc::UniqueFd memfd;
  if (ipc::is_long(body)) {
    auto made = ipc::to_memfd(body);
    if (!made) return tl::unexpected(made.error());
    memfd = std::move(*made);
    body = {};
  }
  const int fd = memfd.get();
  const auto fds = std::span(&fd, memfd ? 1 : 0);

  Lock lock(mutex_);
  const Deadline deadline = Clock::now() + config.timeout + options_.request_timeout;
  // The group is registered as soon as its reply is handled, because an event about its abort may
  // come next.
  auto request = connection_.begin_request(
      lock, ipc::MessageType::kJoin, body, deadline,
      [this, group](ipc::Message& reply, bool abandoned) {
        const auto joined = ipc::body_as<ipc::JoinReply>(reply.body);
        if (!joined) return;
        if (abandoned) {
          ipc::GroupRequest leave;
          leave.group_handle = joined->group_handle;
          connection_.send_and_forget(ipc::MessageType::kLeave, ipc::bytes_of(leave));
          return;
        }
        group->handle = joined->group_handle;
        groups_[group->handle] = group;
        works_.choose_sources();
      },
      fds);
  if (!request) return tl::unexpected(request.error());
  if (auto done = connection_.await_request(lock, *request, deadline, true); !done) {
    return tl::unexpected(done.error());
  }
  if (!ipc::body_as<ipc::JoinReply>((*request)->reply.body)) {
    return fail(ErrorCode::kInternal,
                "the daemon's answer to 'join' makes no sense: it names no group");
  }
  return group;
}

Result<void> Client::leave(gw_group& group) {
  Lock lock(mutex_);
  if (group.left) return {};
  held_.fail(group, ErrorCode::kAborted, kLeftEarly);
  const Deadline deadline = Clock::now() + options_.request_timeout;
  if (group.leave_request == nullptr) {
    ipc::GroupRequest body;
    body.group_handle = group.handle;
    auto request =
        connection_.begin_request(lock, ipc::MessageType::kLeave, ipc::bytes_of(body), deadline);
    if (!request) return tl::unexpected(request.error());
    group.leave_request = *request;
  }
  const RequestPtr request = group.leave_request;
  if (auto done = connection_.await_request(lock, request, deadline, false); !done) {
    // A wait that timed out can be continued; an answer cannot come twice.
    if (request->done) {
      group.leave_request.reset();
      return done;
    }
    if (connection_.dead()) return done;
    const std::string waits_for = who_is_waited_for(lock, group);
    return fail(done.error().code,
                fmt::format("this client has left, but the daemon has not closed the group after "
                            "{:.1f} s: call gw_group_leave() again to wait on{}{}",
                            std::chrono::duration<double>(options_.request_timeout).count(),
                            waits_for.empty() ? "" : "; the daemon waits for: ", waits_for));
  }
  group.left = true;
  groups_.erase(group.handle);
  works_.choose_sources();
  return {};
}

Result<void> Client::abort(gw_group& group, const std::string& reason) {
  ipc::AbortRequest body;
  body.group_handle = group.handle;
  ipc::copy_text(body.text, reason);
  Lock lock(mutex_);
  const Deadline deadline = Clock::now() + options_.request_timeout;
  const auto aborted =
      connection_.request(lock, ipc::MessageType::kAbort, ipc::bytes_of(body), deadline);
  if (!aborted) return tl::unexpected(aborted.error());
  return {};
}

Result<void> Client::group_error(gw_group& group) {
  const Lock lock(mutex_);
  connection_.drain_control();
  if (group.aborted) {
    works_.report_abort(group);
    return fail(ErrorCode::kAborted, group.abort_text);
  }
  return connection_.check_alive();
}

void Client::release(gw_group& group) {
  const Lock lock(mutex_);
  // Of an abort that has come nobody can ask after this.
  connection_.drain_for_poller();
  works_.report_abort(group);
  group.freed = true;
  if (!group.left && group.leave_request == nullptr) {
    ipc::GroupRequest body;
    body.group_handle = group.handle;
    connection_.send_and_forget(ipc::MessageType::kLeave, ipc::bytes_of(body));
  }
  held_.fail(group, ErrorCode::kAborted, kLeftEarly);
  group.left = true;
  groups_.erase(group.handle);
  works_.choose_sources();
}

std::string Client::who_is_waited_for(Lock& lock, const gw_group& group) {
  const Deadline deadline = Clock::now() + kStatusBound;
  const auto request = connection_.request(lock, ipc::MessageType::kStatus, {}, deadline);
  if (!request) return {};
  const auto text = ipc::status_text((*request)->reply);
  if (!text) return {};
  const auto answer = nlohmann::json::parse(*text, nullptr, false);
  const auto groups = answer.find(GRADWIRE_FIELD_NAME(status::DaemonStatus, groups));
  if (groups == answer.end()) return {};
  for (const auto& in : *groups) {
    // It reads only the groups, because the code for a whole DaemonStatus would be two thirds as
    // large as this library.
    status::Group value;
    GRADWIRE_TAKE_FIELD(handle)
    GRADWIRE_TAKE_FIELD(waits_for)
    if (value.handle == group.handle) return fmt::format("{}", fmt::join(value.waits_for, "; "));
  }
  return {};
}

}  // namespace gradwire::client
