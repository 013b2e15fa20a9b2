// SPDX-License-Identifier: BSD-3-Clause
#include "embedded/communicator.h"

#include <fmt/format.h>
#include <rte_pause.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/float_environment.h"
#include "control/formation/table.h"
#include "control/plans/plan_request.h"

namespace gradwire::embedded {
namespace {

constexpr TimeNs kLaneStopNs = 5'000'000'000;
/// ARP and notices are looked at so often, not each round: a round takes some 100 ns.
constexpr TimeNs kControlNs = 25'000;
constexpr std::uint64_t kGroupHandle = 1;

}  // namespace

Communicator::Communicator(const Config& config) : config_(config) {}

Result<std::unique_ptr<Communicator>> Communicator::create(const Config& config) {
  std::unique_ptr<Communicator> made(new Communicator(config));
  if (auto opened = made->open(); !opened) return tl::unexpected(opened.error());
  return made;
}

Result<void> Communicator::open() {
  const auto incarnation = control::random_incarnation();
  if (!incarnation) return tl::unexpected(incarnation.error());
  const auto secret = control::random_secret();
  if (!secret) return tl::unexpected(secret.error());

  lane::DatapathConfig datapath = config_.datapath;
  datapath.max_groups = 1;
  datapath.mbufs_per_shard = [shard = config_.shard](std::uint32_t payload) mutable {
    collective::settle_windows(shard, payload);
    return collective::packet_mbufs_needed(shard);
  };
  datapath.command_lane = false;
  const auto workers = lane::LaneThreads::worker_lcores().size();
  if (datapath.lanes > workers + 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} lanes need one worker lcore each except the first, which the "
                            "caller runs; the EAL has {}",
                            datapath.lanes, workers));
  }
  auto opened = lane::Datapath::create(datapath);
  if (!opened) return tl::unexpected(opened.error());
  datapath_ = std::move(*opened);
  collective::settle_windows(config_.shard, datapath_->max_payload_bytes());

  control::PlanSettings settings;
  settings.shard = config_.shard;
  settings.base_udp_port = datapath.base_udp_port;
  settings.dscp = config_.dscp;
  settings.ecn = config_.ecn;
  control_ = std::make_unique<control::DatapathLanes>(*datapath_, settings, config_.neighbors);

  control::DaemonInfo self;
  self.incarnation = *incarnation;
  self.max_payload_bytes = datapath_->max_payload_bytes();
  self.features = collective::features_of(config_.shard);
  self.base_udp_port = datapath.base_udp_port;
  self.direct_kib = static_cast<std::uint16_t>(config_.shard.direct.op_bytes >> 10);
  const TransportSection keys;
  self.two_step_kib = static_cast<std::uint16_t>(keys.two_step_kib);
  self.gathered_kib = static_cast<std::uint16_t>(keys.gathered_kib);
  self.gathered_ranks = static_cast<std::uint16_t>(keys.gathered_ranks);
  self.tiles = true;
  self.tiles_wanted = control::tiles_wanted(config_.shard.tiles.used ? "always" : "never");
  self.packet_ns = static_cast<std::uint16_t>(keys.packet_ns);
  self.byte_ps = static_cast<std::uint16_t>(keys.byte_ps);
  self.hop_ns = static_cast<std::uint32_t>(keys.hop_ns);
  self.fold_sources = kMaxRanks;
  self.source_ports = control::source_ports_of(*datapath_);
  info_ = control::make_rank_info(self, datapath_->lanes(), control_->addresses());
  info_.secret = control::secret_for(*secret, ::geteuid());
  // The tag takes the room of 16 bytes, and payloads are multiples of 64.
  if (config_.keys.sealed_payload_bytes == 0) {
    config_.keys.sealed_payload_bytes = datapath_->max_payload_bytes() - 64;
  }
  keys_ = std::make_unique<control::DaemonKeys>(config_.keys, *incarnation);
  if (keys_->has_keys()) {
    if (auto written = keys_->write(info_, ::geteuid(), keys_->mode(), {}); !written)
      return written;
  }
  info_.checksum = control::checksum_of(info_);

  if (datapath_->lanes() > 1) {
    threads_ = std::make_unique<lane::LaneThreads>(*datapath_, 1);
    if (auto started = threads_->start(); !started) return started;
  }
  return {};
}

Communicator::~Communicator() {
  if (joined_) {
    constexpr TimeNs kLeaveNs = 5'000'000'000;
    static_cast<void>(leave(kLeaveNs));  // nobody is left to hear of an error
  }
  if (threads_ != nullptr && !threads_->stop(kLaneStopNs)) {
    // A lane that does not stop may touch all that would be freed here.
    static_cast<void>(threads_.release());
    static_cast<void>(datapath_.release());
    static_cast<void>(control_.release());
    for (auto& request : key_requests_) static_cast<void>(request.release());
    return;
  }
  if (plan_ != nullptr) control_->destroy_plan(plan_);
}

// --- driving ------------------------------------------------------------------------------------

bool Communicator::take_reports() noexcept {
  bool any = false;
  command::LaneReport report;
  while (datapath_->next_report(report)) {
    any = true;
    switch (report.type) {
      case collective::EventType::kFormed:
        ++lanes_formed_;
        break;
      case collective::EventType::kOpDone: {
        ++lanes_done_[report.op_seq % command::kOpSlots];
        const auto lanes = static_cast<std::uint8_t>(plan_->shards.size());
        while (done_ < posted_ && lanes_done_[(done_ + 1) % command::kOpSlots] == lanes) ++done_;
        break;
      }
      case collective::EventType::kTransferDone:
      case collective::EventType::kTransferSized:
        break;  // none is posted
      case collective::EventType::kAborted:
      case collective::EventType::kClosed:
        if (!reason_.is_set() && report.reason.is_set()) reason_ = report.reason;
        break;
    }
  }
  return any;
}

void Communicator::take_notices() noexcept {
  command::Notice notice;
  while (control_->next_notice(notice)) {
    if (notice.type == command::NoticeType::kKeyWanted) supply_key(notice);
    if (notice.type == command::NoticeType::kRequestDone && !take_key_request(notice.request)) {
      --requests_open_;
    }
    if (notice.type == command::NoticeType::kGroupAborted && !reason_.is_set()) {
      reason_ = notice.reason;
    }
  }
  send_keys();
}

bool Communicator::drive(TimeNs now) noexcept {
  bool worked = datapath_->lane(0).poll_once(now);
  worked |= take_reports();
  if (now < next_control_ns_) return worked;
  next_control_ns_ = now + kControlNs;
  take_notices();
  control_->poll(now);
  return worked;
}

void Communicator::idle(TimeNs now, bool worked,
                        std::optional<lane::PreciseSleeps>& precise) noexcept {
  lane::Lane& lane = datapath_->lane(0);
  const lane::IdleStep step = lane.after_round(now, worked);
  if (step.action == lane::IdleAction::kPause) rte_pause();
  if (step.action != lane::IdleAction::kSleep) return;
  if (!precise) precise.emplace();
  lane.sleep(step.sleep_ns, now);
}

template <class Done>
Result<void> Communicator::drive_until(Done&& done, TimeNs deadline, const std::string& what) {
  const FloatEnvironment defaults;
  std::optional<lane::PreciseSleeps> precise;
  while (!done()) {
    const TimeNs now = clock_.now();
    const bool worked = drive(now);
    if (done()) break;
    if (now >= deadline) {
      take_notices();
      return done() ? Result<void>{} : fail(ErrorCode::kTimedOut, what);
    }
    idle(now, worked, precise);
  }
  return {};
}

Error Communicator::aborted() const { return {ErrorCode::kAborted, describe(reason_)}; }

// --- formation ----------------------------------------------------------------------------------

Result<void> Communicator::resolve(std::span<control::NeighborPath> paths, control::Asking asking,
                                   TimeNs deadline) {
  for (control::NeighborPath& path : paths) {
    control::Resolution found;
    const auto asked = drive_until(
        [&] {
          found = control_->resolve(path.port, path.remote_ip, asking);
          return found.state != control::ResolveState::kPending;
        },
        deadline,
        fmt::format("rank {} ({}) does not answer {} on port {}", path.rank,
                    wire::to_string(path.remote_ip), port::protocol_name(path.remote_ip),
                    datapath_->ports()[path.port]->config().device));
    if (!asked) return asked;
    if (found.state == control::ResolveState::kFailed) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("rank {} ({}) cannot be reached: {}", path.rank,
                              wire::to_string(path.remote_ip), found.error));
    }
    path.remote_mac = found.mac;
  }
  return {};
}

Result<void> Communicator::send(command::RequestType type, TimeNs deadline) {
  requests_.assign(plan_->shards.size(), {});
  requests_open_ = requests_.size();
  for (std::uint8_t lane = 0; lane < requests_.size(); ++lane) {
    requests_[lane].type = type;
    requests_[lane].group_handle = kGroupHandle;
    requests_[lane].plan = plan_;
    // A lane's ring has room: there are never two requests under way.
    if (!datapath_->send(lane, &requests_[lane])) {
      return fail(ErrorCode::kInternal, fmt::format("the request queue of lane {} is full", lane));
    }
  }
  return drive_until([&] { return requests_open_ == 0; }, deadline,
                     "a lane has not answered a request");
}

Result<void> Communicator::form(const GroupKey& key, std::uint16_t rank,
                                std::span<const ipc::RankInfo> table, TimeNs timeout_ns) {
  if (plan_ != nullptr)
    return fail(ErrorCode::kInvalidArgument, "this communicator has already been formed");
  const TimeNs deadline = clock_.now() + timeout_ns;
  ipc::JoinBody join;
  join.request.group_id = key.group_id;
  join.request.epoch = key.epoch;
  join.request.rank = rank;
  join.request.nranks = static_cast<std::uint16_t>(table.size());
  join.table.assign(table.begin(), table.end());
  auto wanted = control::plan_request(join, info_, control_->addresses(),
                                      keys_->for_join(::geteuid(), join.wants));
  if (!wanted) return tl::unexpected(wanted.error());
  if (auto made = make_keys(*wanted, table); !made) return made;
  // One path for each lane, since nobody would leave out one that is silent.
  const auto shorten = [&](std::vector<control::NeighborPath>& paths) {
    if (paths.size() > wanted->lanes) paths.resize(wanted->lanes);
  };
  shorten(wanted->downstream);
  shorten(wanted->upstream);
  for (control::PeerPaths& peer : wanted->peers) shorten(peer.paths);
  constexpr auto kAtOnce = control::Asking::kAtOnce;
  if (auto found = resolve(wanted->downstream, kAtOnce, deadline); !found) return found;
  if (auto found = resolve(wanted->upstream, kAtOnce, deadline); !found) return found;
  for (control::PeerPaths& peer : wanted->peers) {
    auto found = resolve(peer.paths, control::Asking::kInTurn, deadline);
    if (!found) return found;
  }
  wanted->formation_ns = std::max<TimeNs>(deadline - clock_.now(), 1);
  auto plan = control_->create_plan(kGroupHandle, *wanted);
  if (!plan) return tl::unexpected(plan.error());
  plan_ = *plan;
  plan_->member_clients = {0};

  joined_ = true;
  if (auto added = send(command::RequestType::kAddGroup, deadline); !added) return added;
  const auto formed = drive_until(
      [&] { return lanes_formed_ == plan_->shards.size() || reason_.is_set(); }, deadline,
      fmt::format("rank {}: the neighbors have not answered on {} of {} lanes", rank,
                  plan_->shards.size() - lanes_formed_, plan_->shards.size()));
  if (!formed) return formed;
  if (reason_.is_set()) return tl::unexpected(aborted());
  return {};
}

Result<void> Communicator::leave(TimeNs timeout_ns) {
  if (!joined_) return {};
  joined_ = false;
  return send(command::RequestType::kLeaveGroup, clock_.now() + timeout_ns);
}

// --- display ------------------------------------------------------------------------------------

collective::ShardCounters Communicator::counters() const noexcept {
  collective::ShardCounters sum;
  if (plan_ == nullptr) return sum;
  for (const command::ShardPlacement& placement : plan_->shards) {
    sum += placement.shard->counters();
  }
  return sum;
}

const char* Communicator::backend_name() const noexcept {
  return plan_ == nullptr ? "" : plan_->shards.front().shard->backend_name();
}

}  // namespace gradwire::embedded
