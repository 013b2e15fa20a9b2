// SPDX-License-Identifier: BSD-3-Clause
// What a seed makes fail, and which errors that explains.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "sim/seeds/seed_runner.h"
#include "sim/units.h"

namespace gradwire::sim {
namespace {

/// Of the silence limit, in percent: faults that together last longer may end the epoch.
constexpr TimeNs kHarmlessPercent = 60;

constexpr double kLossOfLossyRail = 0.7;

/// One of several paths at most, so that no op may fail.
bool is_of_rail(FaultKind kind) noexcept {
  return kind == FaultKind::kCutRail || kind == FaultKind::kLossyRail ||
         kind == FaultKind::kSlowRail || kind == FaultKind::kShortRail;
}

}  // namespace

void SeedRun::set_rail(const Fault& fault, bool begins) {
  const HostId from = world_.port_of(fault.a, fault.rail);
  const HostId to = world_.port_of(fault.b, fault.rail, fault.spine);
  Network& network = world_.network();
  if (fault.kind == FaultKind::kCutRail) network.set_down(from, to, begins);
  if (fault.kind == FaultKind::kLossyRail)
    network.set_loss(from, to, begins ? kLossOfLossyRail : 0);
  if (fault.kind == FaultKind::kSlowRail) {
    network.set_delay(from, to, begins ? TimeNs{fault.amount} * kUs : 0);
  }
  if (fault.kind == FaultKind::kShortRail) {
    const std::size_t full =
        wire::kEthernetBytes +
        wire::full_packet_bytes(scenario_.group.shard.payload_bytes, world_.family_of(fault.rail)) +
        (scenario_.group.mode != security::Mode::kOff ? security::kTagBytes : 0);
    network.set_most_bytes(from, to, begins ? full - 1 : SIZE_MAX);
  }
}

void SeedRun::schedule_faults() {
  TimeNs together = 0;
  for (const Fault& fault : scenario_.faults) {
    if (!is_of_rail(fault.kind)) together += fault.duration_ns;
    world_.at(started_at_ + fault.at, [this, &fault] { begin_fault(fault); });
    world_.at(started_at_ + fault.at + fault.duration_ns, [this, &fault] { end_fault(fault); });
  }
  may_abort_ = scenario_.may_abort ||
               together > scenario_.group.shard.timeouts.silence_ns * kHarmlessPercent / 100;
}

TimeNs SeedRun::last_fault_end() const {
  TimeNs end = 0;
  for (const Fault& fault : scenario_.faults) {
    // A rail that fails is no reason to stand still.
    if (!is_of_rail(fault.kind)) end = std::max(end, fault.at + fault.duration_ns);
  }
  return started_at_ + end;
}

void SeedRun::set_cut(const Fault& fault, bool down) {
  Network& network = world_.network();
  if (fault.kind == FaultKind::kCutEdge) {
    network.set_down(fault.a, fault.b, down);
    return;
  }
  const auto inside = [&](std::uint16_t host) {
    if (fault.kind == FaultKind::kCutHost) return host == fault.a;
    return host >= fault.a && host < fault.b;
  };
  if (fault.kind != FaultKind::kCutHost && fault.kind != FaultKind::kPartition) return;
  for (std::uint16_t a = 0; a < scenario_.world.hosts; ++a) {
    for (std::uint16_t b = 0; b < scenario_.world.hosts; ++b) {
      if (inside(a) == inside(b)) continue;
      network.set_down(a, b, down);
      separated_.insert({a, b});
    }
  }
}

void SeedRun::begin_fault(const Fault& fault) {
  if (healed_) return;
  const TimeNs until = world_.now() + fault.duration_ns;
  trace_.line(world_.now(), "fault    {} {} {} begins", name_of(fault.kind), fault.a, fault.b);
  if (is_of_rail(fault.kind)) return set_rail(fault, true);
  blame(fault.a);
  switch (fault.kind) {
    case FaultKind::kPause:
      stood_still_.insert(fault.a);
      if (world_.alive(fault.a)) world_.pause(fault.a, until);
      break;
    case FaultKind::kCrash:
      if (!world_.alive(fault.a)) break;
      crash_times_.push_back(world_.now());
      world_.crash(fault.a);
      job(0).on_crash(fault.a);
      break;
    case FaultKind::kCutEdge:
      blame(fault.b);
      set_cut(fault, true);
      break;
    case FaultKind::kCutHost:
      blame((fault.a + scenario_.nranks - 1) % scenario_.nranks);
      blame((fault.a + 1) % scenario_.nranks);
      set_cut(fault, true);
      break;
    case FaultKind::kPartition:
      blame(fault.a - 1);
      blame(fault.b % scenario_.nranks);
      blame(fault.b - 1);
      set_cut(fault, true);
      break;
    case FaultKind::kClog:
      blame(fault.b);
      world_.network().clog(fault.a, fault.b, until);
      break;
    case FaultKind::kDrought:
      stood_still_.insert(fault.a);
      if (world_.alive(fault.a)) world_.drought(fault.a, fault.amount);
      break;
    case FaultKind::kCutRail:
    case FaultKind::kLossyRail:
    case FaultKind::kSlowRail:
    case FaultKind::kShortRail:
      break;
    case FaultKind::kClientDies:
    case FaultKind::kClientAborts: {
      // A client that has not called yet is no member.
      if (world_.now() < start_of(fault.a)) break;
      job(0).on_client_gone(fault.a);
      AbortReason reason{.code = fault.kind == FaultKind::kClientDies ? AbortCode::kClientDied
                                                                      : AbortCode::kClientAbort,
                         .culprit_rank = fault.a,
                         .reporter_rank = fault.a};
      if (world_.alive(fault.a)) world_.abort(0, fault.a, reason);
      break;
    }
  }
}

void SeedRun::end_fault(const Fault& fault) {
  if (healed_) return;
  trace_.line(world_.now(), "fault    {} {} {} ends", name_of(fault.kind), fault.a, fault.b);
  if (is_of_rail(fault.kind)) return set_rail(fault, false);
  if (fault.kind == FaultKind::kCrash && !world_.alive(fault.a)) world_.restart(fault.a);
  if (fault.kind == FaultKind::kDrought && world_.alive(fault.a)) {
    world_.drought(fault.a, UINT32_MAX);
  }
  set_cut(fault, false);
}

/// Some have the op, some have not: whoever is cut off now may never get it.
void SeedRun::cut_off(std::uint16_t rank) {
  const auto n = scenario_.nranks;
  Fault fault{.kind = FaultKind::kCutHost};
  fault.a = static_cast<std::uint16_t>((rank + 1 + scenario_.seed % (n - 1u)) % n);
  fault.duration_ns = 3 * scenario_.group.shard.timeouts.silence_ns;
  extra_fault_end_ = world_.now() + fault.duration_ns;
  may_abort_ = true;
  progress_[0]->disturbed_until(extra_fault_end_);
  begin_fault(fault);
  world_.at(extra_fault_end_, [this, fault] { end_fault(fault); });
}

/// Whether it waited for others for its leave limit, while a fault held those up for longer, and
/// left. It is alive, and what it would have sent comes no more.
bool SeedRun::left_while_others_were_held_up(std::uint16_t rank) {
  TimeNs together = 0;
  for (const Fault& fault : scenario_.faults) {
    if (!is_of_rail(fault.kind)) together += fault.duration_ns;
  }
  const Job::Client& client = job(0).clients()[rank];
  return together >= scenario_.group.shard.timeouts.leave_ns && client.left && !client.failed &&
         world_.closed(0, rank);
}

/// Whether it had aborted, told its neighbors and closed. A rank that could not be told, since the
/// one by which it hears of the group was cut off, forms the group later and gets no answer.
bool SeedRun::closed_after_abort(std::uint16_t rank) {
  return job(0).clients()[rank].failed && world_.closed(0, rank);
}

/// The op that is called differently is named, with two calls that differ, or it is one of those
/// that are named.
std::string SeedRun::wrong_mismatch(const AbortReason& reason) const {
  const std::string_view detail = reason.detail;
  const std::uint64_t odd = scenario_.odd.op_seq;
  constexpr std::string_view kAmong = " in one of the ops ";
  if (const auto at = detail.find(kAmong); at != std::string_view::npos) {
    const auto to = detail.find(" to ", at + kAmong.size());
    const std::uint64_t last = std::strtoull(detail.data() + to + 4, nullptr, 10);
    return reason.op_seq <= odd && odd <= last ? "" : "names other ops than the one that is called";
  }
  if (reason.op_seq != odd) return "names another op than the one that is called";
  constexpr std::string_view kCalled = " called ";
  const auto first = detail.find(kCalled);
  const auto second = detail.find(", rank ", first);
  const auto other = detail.find(kCalled, second);
  if (second == std::string_view::npos || other == std::string_view::npos) return "";
  const auto call = detail.substr(first + kCalled.size(), second - first - kCalled.size());
  const bool same = call == detail.substr(other + kCalled.size());
  return same ? "names one call twice of the op that is called" : "";
}

void SeedRun::check_reason(std::uint16_t rank, const AbortReason& reason) {
  if (scenario_.odd.any() && reason.code == AbortCode::kMismatch) {
    if (const std::string wrong = wrong_mismatch(reason); !wrong.empty()) {
      job(0).fail(fmt::format("rank {} {} differently: {}", rank, wrong, describe(reason)));
    }
    return;
  }
  const std::uint16_t n = scenario_.nranks;
  const std::uint16_t culprit = reason.culprit_rank;
  const bool neighbor =
      (reason.reporter_rank + 1) % n == culprit || (culprit + 1) % n == reason.reporter_rank;
  // For direct ops each rank awaits every other one, and a transfer may be with any.
  const collective::ShardConfig& shard = scenario_.group.shard;
  const bool awaits = neighbor || shard.direct.op_bytes != 0 || shard.transfers.pairs_max != 0;
  const bool fits =
      may_abort_ &&
      (blamed_.count(culprit) != 0 || separated_.count({reason.reporter_rank, culprit}) != 0 ||
       (stood_still_.count(reason.reporter_rank) != 0 && awaits) ||
       left_while_others_were_held_up(culprit) || closed_after_abort(culprit));
  if (!fits) {
    job(0).fail(
        fmt::format("rank {} aborted though nothing of what was made to fail explains it: {}", rank,
                    describe(reason)));
    return;
  }
  const bool by_client =
      reason.code == AbortCode::kClientDied || reason.code == AbortCode::kClientAbort;
  // A neighbor that said bye is not named as silent.
  const bool left = reason.code == AbortCode::kPeerLeft && job(0).clients()[culprit].left;
  if (reason.code != AbortCode::kSilence && reason.code != AbortCode::kFormation && !by_client &&
      !left) {
    job(0).fail(fmt::format("rank {} aborted for a reason that nothing here gives: {}", rank,
                            describe(reason)));
  }
}

}  // namespace gradwire::sim
