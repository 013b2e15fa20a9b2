// SPDX-License-Identifier: BSD-3-Clause
#include "control/formation/formation.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "control/formation/folding.h"
#include "control/formation/formation_missing.h"
#include "control/plans/plan_request.h"

namespace gradwire::control {
namespace {

/// How much longer a shard waits than the manager, so that the manager gives up first: it can name
/// what is missing.
constexpr TimeNs kShardGraceNs = 1'000'000'000;

// A table's entry is checked in about a microsecond; a plan of it takes twice as long.
constexpr std::uint64_t kPlanSteps = 2;
/// The MAC of an entry, by one key or by two.
constexpr std::uint64_t kTableMacSteps = 4;
constexpr std::uint64_t kProcessesPerStep = 64;
/// For groups whose time for forming is over, in one round; the last may exceed it.
constexpr std::uint64_t kEndStepsPerRound = 4'096;

std::string seconds_text(TimeNs ns) {
  return fmt::format("{:.1f} s", static_cast<double>(ns) / 1e9);
}

Result<void> check_epoch(const Epochs& epochs, uid_t uid, const GroupKey& key) {
  const auto last = epochs.last(uid, key.group_id);
  if (!last || key.epoch > *last) return {};
  return fail(
      ErrorCode::kBusy,
      fmt::format("{}: this daemon has begun to form epoch {} of the group already. Packets "
                  "of that time may still be on their way, so the epoch must be higher each "
                  "time that a group is formed: use {} or more",
                  key_text(key), *last, std::uint64_t{*last} + 1));
}

/// For a lane's part of a group: memory for its ops is made and cleared.
constexpr std::uint64_t kLaneStartSteps = 512;
/// In one round.
constexpr std::uint64_t kStartStepsPerRound = 2'048;

/// Further networks that lead downstream have no lane.
void count_idle_networks(Group& group) {
  if (group.nranks() == 1) return;
  const std::span<const NeighborPath> paths = group.wanted.downstream;
  const std::size_t used = paths_used(paths, group.wanted.lanes);
  group.idle_networks = paths.size() - used;
  if (group.idle_networks == 0) return;
  spdlog::warn(
      "{}: {} networks lead to rank {}, but {} lanes use only {} of them, unless "
      "one fails: set lanes.count to {} or more",
      key_text(group.key), paths.size(), group.downstream_rank(), group.wanted.lanes, used,
      lanes_for_all(paths));
}

/// What this rank sums of all-reduces by tiles, if that is not its segment of the ring.
std::string tile_share_text(const PlanRequest& plan) {
  if (plan.tile_shares == nullptr) return {};
  return fmt::format("; this rank sums {:.1f} % of an all-reduce", plan.tile_share_percent());
}

}  // namespace

Formation::Formation(const ManagerOptions& options, LaneControl& lanes, const LaneReports& reports,
                     GroupTable& groups, GroupEnds& ends, LaneRequests& requests, Replies& replies,
                     WorkMeter& work, const Stopping& stopping, const Drain& drain,
                     const Entries& entries, DaemonKeys& keys, ipc::Worker& worker)
    : options_(options),
      lanes_(lanes),
      reports_(reports),
      groups_(groups),
      ends_(ends),
      requests_(requests),
      replies_(replies),
      work_(work),
      stopping_(stopping),
      drain_(drain),
      entries_(entries),
      keys_(keys),
      worker_(worker),
      paths_(lanes, groups, ends, work) {}

void Formation::join(const PendingReply& to, Client& client, const ipc::Message& message,
                     TimeNs now) {
  if (!stopping_.running()) {
    return replies_.error(to, {ErrorCode::kUnavailable, "the daemon is stopping"});
  }
  const auto parsed = ipc::parse_join(message);
  if (!parsed) return replies_.error(to, parsed.error());
  const auto bound = bound_of(parsed->request);
  if (!bound) return replies_.error(to, bound.error());
  work_.add(parsed->table.size() + parsed->ranks.size() / kProcessesPerStep);
  const auto found = group_to_join(*parsed, client, now);
  if (!found) return replies_.error(to, found.error());
  Group& group = **found;
  Member& member = group.members[parsed->request.member];
  member.client_id = client.id;
  if (!group.wanted.transfers_alone) ++client.groups;
  member.pid = client.peer.pid;
  member.join_reply = to;
  group.formation_deadline = std::min(group.formation_deadline, now + *bound);
  if (group.all_joined()) paths_.begin(group, now);
}

Result<TimeNs> Formation::bound_of(const ipc::JoinRequest& request) const {
  if (request.timeout_ms == 0) return options_.limits.formation_default_ns;
  const TimeNs bound = static_cast<TimeNs>(request.timeout_ms) * 1'000'000;
  if (bound > options_.limits.formation_max_ns) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a timeout of {} ms was asked for: it must be at most {}",
                            request.timeout_ms, options_.limits.formation_max_ns / 1'000'000));
  }
  return bound;
}

Result<Group*> Formation::group_to_join(const ipc::JoinBody& body, const Client& client,
                                        TimeNs now) {
  // First what costs nothing: a table may have 1,024 ranks, and anybody may send as many joins as
  // the daemon answers.
  const bool transfers_alone = body.request.transfers_alone();
  if (!transfers_alone && client.groups >= options_.limits.groups_per_client) {
    return fail(
        ErrorCode::kResourceExhausted,
        fmt::format("the client is already a member of {} groups, and limits.client_groups = {}: "
                    "leave one, or raise limits.client_groups in the daemon's configuration",
                    client.groups, options_.limits.groups_per_client));
  }
  const auto job = job_key_of(body, client);
  if (!job) return tl::unexpected(job.error());
  const GroupKey key = {body.request.group_id, body.request.epoch};
  if (Group* exists = groups_.by_key(key)) {
    if (auto ok = check_member(*exists, body, client); !ok) return tl::unexpected(ok.error());
    return exists;
  }
  if (auto rises = check_epoch(epochs_, client.peer.uid, key); !rises) {
    return tl::unexpected(rises.error());
  }
  if (drain_.active()) {
    return fail(ErrorCode::kUnavailable, "the daemon is draining and forms no new group");
  }
  if (auto room = room_for_group(client.peer.uid, transfers_alone); !room) {
    return tl::unexpected(room.error());
  }
  // Bad tables, and ranks that have no common network, are refused before anybody waits.
  work_.add((kPlanSteps + (keys_.has_keys() ? kTableMacSteps : 0)) * body.table.size());
  auto wanted = plan_request(body, entries_.without_keys(client.peer.uid), lanes_.addresses(),
                             keys_.for_join(client.peer.uid, body.wants));
  if (!wanted) return tl::unexpected(wanted.error());
  auto key_room = keys_.room_for(*wanted, client.peer.uid);
  if (!key_room) return tl::unexpected(key_room.error());
  auto group = std::make_unique<Group>();
  group->key = key;
  group->rank = body.request.rank;
  group->uid = client.peer.uid;
  group->table = body.table;
  group->ranks = body.ranks;
  group->job = *job;
  group->key_room = std::move(*key_room);
  group->wanted = std::move(*wanted);
  group->members.resize(clients_of(body.request));
  group->since = group->formation_start = now;
  group->formation_deadline = kNever;
  count_idle_networks(*group);
  return &groups_.add(std::move(group));
}

void Formation::run(TimeNs now) { start_in_turn(paths_.run(now), now); }

void Formation::start_in_turn(const PathQuestions::Users& users, TimeNs now) {
  std::uint64_t left = kStartStepsPerRound;
  auto next = users.upper_bound(last_started_);
  for (std::size_t i = 0; i < users.size(); ++i, ++next) {
    if (next == users.end()) next = users.begin();
    for (const std::uint64_t handle : next->second) {
      Group* group = groups_.by_handle(handle);
      if (group == nullptr || group->state != GroupState::kResolving) continue;
      if (group->making != nullptr && group->made_keys == nullptr) continue;
      if (!paths_.is_resolved(*group, now)) continue;
      if (left == 0) {
        work_.leave_some();
        return;
      }
      const std::uint64_t steps =
          (std::uint64_t{group->all_ranks()} + kLaneStartSteps) * group->wanted.lanes;
      work_.add(steps);
      work_.charge(next->first, steps);
      left -= std::min(left, steps);
      last_started_ = next->first;
      start_lanes(*group, now);
    }
  }
}

void Formation::start_lanes(Group& group, TimeNs now) {
  if (group.making == nullptr) {
    // One of a higher epoch may have begun while the members of this one came.
    if (auto rises = check_epoch(epochs_, group.uid, group.key); !rises) {
      return paths_.unreachable(group, rises.error(), now);
    }
    epochs_.begin(group.uid, group.key.group_id, group.key.epoch);
    keys_.begun();
    if (group.wanted.security.mode != security::Mode::kOff) return make_keys(group, now);
  } else if (!take_keys(group, now)) {
    return;
  }
  create_plan(group, now);
}

void Formation::create_plan(Group& group, TimeNs now) {
  group.wanted.formation_ns = std::max<TimeNs>(group.formation_deadline - now, 0) + kShardGraceNs;
  const auto plan = lanes_.create_plan(group.handle, group.wanted);
  if (!plan) {
    return ends_.fail_formation(
        group, plan.error(), reason_here(group, AbortCode::kFormation, plan.error().message), now);
  }
  group.plan = *plan;
  group.plan->member_clients.clear();
  for (const Member& member : group.members) {
    group.plan->member_clients.push_back(member.client_id);
  }
  group.become(GroupState::kForming, now);
  group.questions = {};
  for (std::uint8_t lane = 0; lane < group.wanted.lanes; ++lane) {
    command::Request add;
    add.type = command::RequestType::kAddGroup;
    add.group_handle = group.handle;
    add.plan = group.plan;
    requests_.send(lane, add);
  }
}

void Formation::on_lane_formed(Group& group, std::uint8_t lane, TimeNs now) {
  if (group.state != GroupState::kForming || lane >= group.wanted.lanes) return;
  group.lanes_formed.set(lane);
  if (group.lanes_formed.count() < group.wanted.lanes) return;
  group.become(GroupState::kFormed, now);
  spdlog::info(
      "{} formed: rank {} of {}, {} members, {} lanes, payload {}, direct ops up to {} KiB, in two "
      "steps up to {} KiB, summed by {} of {} ranks, gathered up to {} KiB{}",
      key_text(group.key), group.rank, group.all_ranks(),
      group.folds_only() ? 0 : group.members.size(), group.wanted.lanes, group.wanted.payload_bytes,
      group.wanted.direct_bytes >> 10, group.wanted.two_step_op_bytes() >> 10,
      group.wanted.two_step_owners(), group.all_ranks(), group.wanted.gathered_bytes >> 10,
      formed_text(group.wanted.security));
  if (group.wanted.tiles && !group.wanted.tiles_for_formats_alone) {
    spdlog::info("{}: larger all-reduces, reduce-scatters and all-gathers go by tiles{}{}",
                 key_text(group.key),
                 group.wanted.tile_costs != nullptr ? ", if they take less time so" : "",
                 tile_share_text(group.wanted));
  } else if (!group.wanted.why_no_tiles.empty()) {
    const bool wanted = group.table[0].tiles_wanted == ipc::RankInfo::kTilesAlways;
    spdlog::log(wanted ? spdlog::level::warn : spdlog::level::info,
                "{}: no op without a wire format goes by tiles: {}", key_text(group.key),
                group.wanted.why_no_tiles);
  }
  if (!group.wanted.why_not_direct.empty()) {
    spdlog::warn("{}: no op is direct, though rank 0 has transport.direct_kib = {}: {}",
                 key_text(group.key), group.table[0].direct_kib, group.wanted.why_not_direct);
  }
  if (group.all_ranks() > warned_ranks_) {
    const std::string text = short_receive_ring(group, lanes_);
    if (!text.empty()) {
      spdlog::warn("{}", text);
      warned_ranks_ = group.all_ranks();
    }
  }
  ipc::JoinReply body;
  body.group_handle = group.handle;
  body.payload_bytes = group.wanted.payload_bytes;
  body.lanes = group.wanted.lanes;
  for (Member& member : group.members) {
    if (member.join_reply) {
      replies_.send(*member.join_reply, ipc::bytes_of(body));
      work_.add(kSendSteps);
    }
    member.join_reply.reset();
  }
}

void Formation::check_deadline(Group& group, TimeNs now, std::optional<Published>& published) {
  if (group.state > GroupState::kForming || now < group.formation_deadline) return;
  if (ended_steps_ >= kEndStepsPerRound) {
    work_.leave_some();
    return;
  }
  ended_steps_ += group.table.size();
  work_.charge(group.uid, group.table.size());
  if (!published) {
    work_.add(groups_.size() * lanes_.lanes());
    published = read_published(reports_, lanes_.lanes());
  }
  work_.add(group.table.size());
  const std::string missing = what_is_missing(group, *published, lanes_);
  AbortReason reason = reason_here(group, AbortCode::kFormation, missing);
  reason.culprit_rank = late_rank(group, *published);
  reason.duration_ns = static_cast<std::uint64_t>(now - group.formation_start);
  ends_.fail_formation(
      group,
      {ErrorCode::kTimedOut, fmt::format("{} was not formed within {}: {}", key_text(group.key),
                                         seconds_text(now - group.formation_start), missing)},
      reason, now);
}

}  // namespace gradwire::control
