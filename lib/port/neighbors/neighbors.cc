// SPDX-License-Identifier: BSD-3-Clause
#include "port/neighbors/neighbors.h"

#include <fmt/format.h>

#include <algorithm>

#include "port/neighbors/neighbor_discovery.h"

namespace gradwire::port {

namespace {

// Further answers are dropped while this many wait, as in a flood of requests.
constexpr std::size_t kMaxOutgoing = 256;
constexpr std::size_t kMaxEvents = 64;
constexpr TimeNs kEventIntervalNs = 10'000'000'000;  // of claims for one neighbor, of duplicates
constexpr std::uint32_t kOwnProbes = 3;              // RFC 5227's PROBE_NUM

bool is_any(const wire::IpAddress& ip) noexcept {
  return std::all_of(ip.bytes.begin(), ip.bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

}  // namespace

void Neighbors::add_static(const wire::IpAddress& ip, const wire::MacAddress& mac) {
  Entry& entry = entries_[ip];
  entry = Entry{};
  entry.state = NeighborState::kReachable;
  entry.is_static = entry.known = true;
  entry.mac = mac;
}

Result<void> Neighbors::resolve(const wire::IpAddress& ip, TimeNs now) {
  // A router may go by its link-local address alone (RFC 4861 section 2.3).
  const bool on_link = wire::same_network(ip, config_.ip, config_.prefix_bits) ||
                       (wire::is_link_local(ip) && config_.ip.family == 6);
  if (!on_link) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{} is not in the port's network {}/{}: neighbors in a ring must share a network",
            wire::to_string(ip), wire::to_string(config_.ip), config_.prefix_bits));
  }
  auto found = entries_.find(ip);
  if (found == entries_.end()) {
    if (!make_room(now)) {
      return fail(ErrorCode::kResourceExhausted,
                  fmt::format("{} cannot be resolved: the table of neighbors is full, and groups "
                              "use all its {} entries",
                              wire::to_string(ip), entries_.size()));
    }
    found = entries_.emplace(ip, Entry{}).first;
  }
  Entry& entry = found->second;
  entry.asked_ns = now;
  if (entry.state == NeighborState::kUnknown || entry.state == NeighborState::kFailed) {
    entry.state = NeighborState::kIncomplete;
    entry.attempts = 0;
    ask(ip, entry, now);
  } else if (entry.state == NeighborState::kStale && entry.holds == 0) {
    probe(ip, entry, 1, now);
  }
  return {};
}

bool Neighbors::make_room(TimeNs now) {
  if (entries_.size() < config_.max_entries) return true;
  auto oldest = entries_.end();
  const auto goes_first = [](const Entry& a, const Entry& b) {
    return a.known != b.known ? b.known : a.asked_ns < b.asked_ns;
  };
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = it->second;
    if (entry.is_static || entry.holds > 0 || now - entry.asked_ns < config_.wanted_ns) continue;
    if (oldest == entries_.end() || goes_first(entry, oldest->second)) oldest = it;
  }
  if (oldest == entries_.end()) return false;
  entries_.erase(oldest);
  ++counters_.evicted;
  return true;
}

bool Neighbors::hold(const wire::IpAddress& ip) noexcept {
  const auto found = entries_.find(ip);
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  ++entry.holds;
  if (!entry.is_static && entry.state == NeighborState::kReachable) {
    entry.next_ns = std::min(entry.next_ns, entry.confirmed_ns + config_.reachable_ns);
  } else if (entry.state == NeighborState::kStale) {
    entry.next_ns = 0;
  }
  next_due_ns_ = std::min(next_due_ns_, entry.next_ns);
  return true;
}

void Neighbors::release(const wire::IpAddress& ip) noexcept {
  const auto found = entries_.find(ip);
  if (found != entries_.end() && found->second.holds > 0) --found->second.holds;
}

NeighborState Neighbors::state(const wire::IpAddress& ip) const noexcept {
  const auto found = entries_.find(ip);
  return found == entries_.end() ? NeighborState::kUnknown : found->second.state;
}

std::optional<wire::MacAddress> Neighbors::lookup(const wire::IpAddress& ip) const noexcept {
  const auto found = entries_.find(ip);
  if (found == entries_.end() || !found->second.known) return std::nullopt;
  const Entry& entry = found->second;
  if (entry.state != NeighborState::kReachable && entry.holds == 0) return std::nullopt;
  return entry.mac;
}

Neighbors::Entry* Neighbors::learnable(const wire::IpAddress& ip) noexcept {
  const auto found = entries_.find(ip);
  return found == entries_.end() || found->second.is_static ? nullptr : &found->second;
}

void Neighbors::reach(Entry& entry, TimeNs now) noexcept {
  entry.state = NeighborState::kReachable;
  entry.known = true;
  entry.answered = false;
  entry.candidate.reset();
  entry.pushes = 0;
  entry.attempts = 0;
  entry.rest_ns = 0;
  entry.confirmed_ns = now;
  entry.next_ns = now + (entry.holds > 0 ? config_.reachable_ns : config_.idle_reachable_ns);
  next_due_ns_ = std::min(next_due_ns_, entry.next_ns);
}

void Neighbors::confirm(const wire::IpAddress& ip, TimeNs now) noexcept {
  Entry* entry = learnable(ip);
  if (entry == nullptr || !entry->known) return;
  reach(*entry, now);
  entry->suspected = false;
  entry->unproven = 0;
  entry->suspect_from_ns = now;
}

void Neighbors::suspect(const wire::IpAddress& ip, TimeNs now) {
  Entry* entry = learnable(ip);
  if (entry == nullptr || !entry->known || now < entry->suspect_from_ns) return;
  if (entry->state == NeighborState::kProbe && entry->suspected) return;
  entry->suspected = true;
  probe(ip, *entry, entry->unproven == 0 ? 1 : 0, now);
}

void Neighbors::check(const wire::IpAddress& ip, TimeNs now) {
  Entry* entry = learnable(ip);
  if (entry == nullptr || !entry->known || entry->state == NeighborState::kProbe) return;
  if (entry->rest_ns == 0 && now - entry->confirmed_ns >= config_.reachable_ns) {
    probe(ip, *entry, config_.unicast_probes, now);
  }
}

void Neighbors::send(const NeighborFrame& frame) {
  if (outgoing_.size() < kMaxOutgoing) outgoing_.push_back(frame);
}

void Neighbors::note(const NeighborEvent& event) {
  if (events_.size() < kMaxEvents) events_.push_back(event);
}

void Neighbors::probe(const wire::IpAddress& ip, Entry& entry, std::uint32_t unicast, TimeNs now) {
  entry.state = NeighborState::kProbe;
  entry.answered = false;
  entry.candidate.reset();
  entry.attempts = 0;
  entry.unicast = unicast;
  ask(ip, entry, now);
}

/// A neighbor that is known is asked under its address first, so that a quiet network stays quiet
/// (RFC 1122 section 2.3.2.1).
void Neighbors::ask(const wire::IpAddress& ip, Entry& entry, TimeNs now) {
  const bool probes = entry.state == NeighborState::kProbe;
  const bool alone = probes && entry.attempts < entry.unicast;
  ++entry.attempts;
  entry.next_ns = now + (probes ? config_.probe_ns : config_.retry_ns);
  next_due_ns_ = std::min(next_due_ns_, entry.next_ns);
  send(make_question(self(), ip, alone ? std::optional(entry.mac) : std::nullopt));
}

void Neighbors::forget_learnt() noexcept {
  for (auto& [ip, entry] : entries_) {
    if (entry.is_static) continue;
    if (entry.holds > 0 && entry.known) {
      entry.state = NeighborState::kStale;
      entry.next_ns = kNever;
      continue;
    }
    Entry forgotten;
    forgotten.holds = entry.holds;
    forgotten.asked_ns = entry.asked_ns;
    entry = forgotten;
  }
}

void Neighbors::on_link_up(TimeNs now) {
  own_probes_left_ = kOwnProbes;
  next_own_probe_ns_ = now;
  if (config_.ip.family == 6) next_report_ns_ = now;
  for (auto& [ip, entry] : entries_) {
    if (entry.is_static || entry.holds == 0 || !entry.known) continue;
    if (entry.state != NeighborState::kStale) continue;
    entry.suspected = true;
    probe(ip, entry, 1, now);
  }
}

void Neighbors::on_frame(std::span<const std::byte> frame, TimeNs now) {
  wire::FrameView view;
  if (wire::parse_frame(frame, view) != wire::Drop::kNone) return;
  if (view.vlan_id != config_.vlan_id) return;
  NeighborMessage message;
  const MessageVerdict verdict = read_message(view, message);
  if (verdict == MessageVerdict::kNone) return;
  const bool says_it_is_us = message.sender_ip == config_.ip;
  if (says_it_is_us && verdict == MessageVerdict::kGood && message.sender_mac != config_.mac) {
    on_duplicate(message.sender_mac, now);
  }
  if (says_it_is_us || message.target_ip != config_.ip) return;
  if (verdict == MessageVerdict::kRefused) {
    ++counters_.refused;
    return;
  }
  // Who has no address yet looks whether this one is free: it will be a duplicate if it takes it.
  if (message.is_question && is_any(message.sender_ip) && message.sender_mac != config_.mac) {
    on_duplicate(message.sender_mac, now);
  }

  // Only addresses that were asked for are learnt, and only from answers: strangers cannot fill the
  // table, and whoever asks may say what it likes of itself.
  const auto found = entries_.find(message.sender_ip);
  if (found != entries_.end() && !found->second.is_static) {
    Entry& entry = found->second;
    if (!message.is_question) {
      on_answer(found->first, entry, message.sender_mac, now);
    } else if (entry.known && entry.mac != message.sender_mac) {
      on_claim(found->first, entry, message.sender_mac, now);
    }
  }
  ReplyLimit& limit =
      found != entries_.end() || knows(message.sender_mac) ? neighbors_ : strangers_;
  if (message.is_question && limit.allow(now)) send(make_answer(self(), message));
}

void Neighbors::on_answer(const wire::IpAddress& ip, Entry& entry, const wire::MacAddress& mac,
                          TimeNs now) {
  const bool probes = entry.state == NeighborState::kProbe;
  const bool asked_all = probes && entry.attempts > entry.unicast;
  if (entry.known && entry.mac != mac && entry.state != NeighborState::kFailed) {
    if (!asked_all) {
      entry.pusher = mac;
      ++entry.pushes;
      return on_claim(ip, entry, mac, now);
    }
    // Perhaps its own answers were lost, or drown in a flood of others. And who answers before it
    // is asked goes last.
    const bool pushes = entry.pusher == mac;
    if (pushes || (entry.holds > 0 && !entry.suspected)) {
      if (!entry.candidate || !pushes) entry.candidate = mac;
      return;
    }
    return move(ip, entry, mac, now);
  } else if (entry.known && !probes && entry.state != NeighborState::kFailed) {
    return;  // nobody asked
  } else if (asked_all && entry.unproven > 0) {
    // It answered before, and its packets came to nothing: another one's answer goes before.
    entry.answered = true;
    return;
  }
  if (entry.state == NeighborState::kUnknown) return;
  entry.mac = mac;
  prove(entry, now);
}

void Neighbors::move(const wire::IpAddress& ip, Entry& entry, const wire::MacAddress& mac,
                     TimeNs now) {
  note({NeighborEvent::Type::kMoved, ip, entry.mac, mac});
  ++counters_.moved;
  entry.mac = mac;
  prove(entry, now);
}

/// What a suspected neighbor answers proves little: its packets may still come to nothing.
void Neighbors::prove(Entry& entry, TimeNs now) noexcept {
  if (entry.suspected) {
    entry.suspect_from_ns = now + (config_.probe_ns << std::min(entry.unproven, 4u));
    ++entry.unproven;
  }
  reach(entry, now);
}

void Neighbors::on_claim(const wire::IpAddress& ip, Entry& entry, const wire::MacAddress& mac,
                         TimeNs now) {
  ++counters_.claims;
  if (now >= entry.next_claim_ns) {
    entry.next_claim_ns = now + kEventIntervalNs;
    note({NeighborEvent::Type::kClaimed, ip, entry.mac, mac});
  }
  // Nobody's packets go there: whoever wants it next asks first.
  if (entry.holds == 0 && entry.state == NeighborState::kReachable) {
    entry.state = NeighborState::kStale;
    entry.next_ns = kNever;
  }
}

void Neighbors::on_duplicate(const wire::MacAddress& mac, TimeNs now) {
  ++counters_.duplicates;
  duplicate_ = mac;
  if (now < next_duplicate_ns_) return;
  next_duplicate_ns_ = now + kEventIntervalNs;
  note({NeighborEvent::Type::kDuplicate, config_.ip, config_.mac, mac});
}

std::size_t Neighbors::unanswered() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(entries_, [](const auto& entry) {
    return entry.second.state == NeighborState::kIncomplete;
  }));
}

bool Neighbors::take_frame(NeighborFrame& out) {
  if (outgoing_.empty()) return false;
  out = outgoing_.front();
  outgoing_.pop_front();
  return true;
}

bool Neighbors::take_event(NeighborEvent& out) {
  if (events_.empty()) return false;
  out = events_.front();
  events_.pop_front();
  return true;
}

}  // namespace gradwire::port
