// SPDX-License-Identifier: BSD-3-Clause
// What a table of neighbors does when time has passed: it asks again, and gives up.
#include <algorithm>

#include "port/neighbors/neighbor_discovery.h"
#include "port/neighbors/neighbors.h"

namespace gradwire::port {

namespace {

constexpr TimeNs kMaxRestNs = 60'000'000'000;
/// Of a neighbor that was not asked: a router that comes back says several times that it is there.
constexpr std::uint32_t kUsualPushes = 8;
/// To everybody, before one is taken that says more than that: the right one's answers may be lost
/// among it.
constexpr std::uint32_t kQuestionsInFlood = 3;
constexpr TimeNs kReportNs = 60'000'000'000;  // half of RFC 3810's query interval

}  // namespace

void Neighbors::poll(TimeNs now) {
  if (now >= next_own_probe_ns_) {
    send(make_probe(self()));
    next_own_probe_ns_ = --own_probes_left_ > 0 ? now + config_.retry_ns : kNever;
  }
  if (now >= next_report_ns_) {
    send(make_membership_report(self()));
    next_report_ns_ = now + (own_probes_left_ > 0 ? config_.retry_ns : kReportNs);
  }
  if (now < next_due_ns_) return;
  next_due_ns_ = kNever;
  for (auto& [ip, entry] : entries_) {
    if (now >= entry.next_ns) on_timer(ip, entry, now);
    next_due_ns_ = std::min(next_due_ns_, entry.next_ns);
  }
}

void Neighbors::on_timer(const wire::IpAddress& ip, Entry& entry, TimeNs now) {
  switch (entry.state) {
    case NeighborState::kReachable:
      entry.state = entry.holds > 0 ? NeighborState::kDelay : NeighborState::kStale;
      entry.next_ns = entry.holds > 0 ? now + config_.delay_ns : kNever;
      return;
    case NeighborState::kStale:
    case NeighborState::kDelay:
      if (entry.holds > 0) return probe(ip, entry, config_.unicast_probes, now);
      entry.state = NeighborState::kStale;
      entry.next_ns = kNever;
      return;
    case NeighborState::kIncomplete:
      return entry.attempts < config_.attempts ? ask(ip, entry, now) : give_up(entry, now);
    case NeighborState::kProbe:
      if (entry.answered) return prove(entry, now);
      if (entry.candidate &&
          (entry.pushes <= kUsualPushes || entry.attempts >= entry.unicast + kQuestionsInFlood)) {
        return move(ip, entry, *entry.candidate, now);
      }
      return entry.attempts < entry.unicast + config_.attempts ? ask(ip, entry, now)
                                                               : give_up(entry, now);
    case NeighborState::kUnknown:
    case NeighborState::kFailed:
      entry.next_ns = kNever;
  }
}

/// A neighbor that groups use is kept: it may take packets though it does not answer questions.
void Neighbors::give_up(Entry& entry, TimeNs now) {
  if (entry.known) ++counters_.unanswered;
  if (entry.known && entry.holds > 0) {
    entry.rest_ns = std::clamp(2 * entry.rest_ns, config_.rest_ns, kMaxRestNs);
    entry.state = NeighborState::kStale;
    entry.next_ns = now + entry.rest_ns;
    entry.suspect_from_ns = entry.next_ns;
    return;
  }
  // Whoever asks for it again asks everybody, and takes the first answer.
  entry.known = entry.suspected = false;
  entry.unproven = 0;
  entry.state = NeighborState::kFailed;
  entry.next_ns = kNever;
}

TimeNs Neighbors::deadline() const noexcept {
  TimeNs earliest = std::min(next_own_probe_ns_, next_report_ns_);
  for (const auto& [ip, entry] : entries_) {
    if (!entry.is_static) earliest = std::min(earliest, entry.next_ns);
  }
  return earliest;
}

}  // namespace gradwire::port
