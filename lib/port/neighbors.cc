// SPDX-License-Identifier: BSD-3-Clause
#include "port/neighbors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace gradwire::port {

namespace {

constexpr std::uint16_t kEtherTypeArp = 0x0806;
constexpr std::uint16_t kEtherTypeVlan = 0x8100;
constexpr std::uint16_t kArpRequest = 1;
constexpr std::uint16_t kArpReply = 2;
constexpr std::size_t kArpBytes = 28;
constexpr std::size_t kMinFrameBytes = 60;  // Ethernet's smallest, CRC not counted
// Further answers are dropped while this many wait, as in a flood of requests.
constexpr std::size_t kMaxOutgoing = 256;

std::uint16_t load16(const std::byte* p) noexcept {
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(p[0]) << 8 |
                                    std::to_integer<unsigned>(p[1]));
}

void store16(std::byte* p, std::uint16_t value) noexcept {
  p[0] = static_cast<std::byte>(value >> 8);
  p[1] = static_cast<std::byte>(value & 0xff);
}

bool is_group(const wire::MacAddress& mac) noexcept { return (mac[0] & 1) != 0; }

bool is_unicast(const wire::MacAddress& mac) noexcept {
  return !is_group(mac) && mac != wire::MacAddress{};
}

/// Whether a host may send from that IPv4 address (RFC 1122 section 3.2.1.3): no host has an
/// address in 0/8 or 127/8, or a multicast, reserved or broadcast address.
bool is_host(const wire::IpAddress& ip) noexcept {
  return ip.bytes[0] != 0 && ip.bytes[0] != 127 && ip.bytes[0] < 224;
}

}  // namespace

void Neighbors::add_static(const wire::IpAddress& ip, const wire::MacAddress& mac) {
  Entry& entry = entries_[ip];
  entry = Entry{};
  entry.state = NeighborState::kReachable;
  entry.is_static = true;
  entry.mac = mac;
}

Result<void> Neighbors::resolve(const wire::IpAddress& ip, TimeNs now) {
  if (ip.family != 4) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} cannot be resolved to a MAC address: neighbours must be IPv4",
                            wire::to_string(ip)));
  }
  if (!wire::same_network(ip, config_.ip, config_.prefix_bits)) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{} is not in the port's network {}/{}: neighbours in a ring must share a network",
            wire::to_string(ip), wire::to_string(config_.ip), config_.prefix_bits));
  }
  auto found = entries_.find(ip);
  if (found == entries_.end()) {
    if (!make_room(now)) {
      return fail(ErrorCode::kResourceExhausted,
                  fmt::format("{} cannot be resolved: the table of neighbours is full, and groups "
                              "use all its {} entries",
                              wire::to_string(ip), entries_.size()));
    }
    found = entries_.emplace(ip, Entry{}).first;
  }
  Entry& entry = found->second;
  entry.asked_ns = now;
  if (entry.state == NeighborState::kUnknown || entry.state == NeighborState::kFailed) {
    entry.state = NeighborState::kResolving;
    entry.attempts = 0;
    ask(ip, entry, now);
  }
  return {};
}

bool Neighbors::make_room(TimeNs now) {
  if (entries_.size() < config_.max_entries) return true;
  auto oldest = entries_.end();
  const auto goes_first = [](const Entry& a, const Entry& b) {
    const bool a_lives = a.state == NeighborState::kReachable;
    const bool b_lives = b.state == NeighborState::kReachable;
    return a_lives != b_lives ? b_lives : a.asked_ns < b.asked_ns;
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
  ++found->second.holds;
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
  if (found == entries_.end() || found->second.state != NeighborState::kReachable) {
    return std::nullopt;
  }
  return found->second.mac;
}

void Neighbors::ask(const wire::IpAddress& ip, Entry& entry, TimeNs now) {
  ++entry.attempts;
  entry.next_ns = now + config_.retry_ns;
  // A renewal goes to the known MAC address first instead of to everybody (RFC 1122 2.3.2.1).
  const bool renewal = entry.state == NeighborState::kReachable;
  send_arp(kArpRequest, renewal ? entry.mac : wire::kBroadcastMac, wire::MacAddress{}, ip);
}

void Neighbors::send_arp(std::uint16_t operation, const wire::MacAddress& destination,
                         const wire::MacAddress& target_mac, const wire::IpAddress& target_ip) {
  if (outgoing_.size() >= kMaxOutgoing) return;
  NeighborFrame& frame = outgoing_.emplace_back();
  std::byte* p = frame.bytes.data();
  std::memcpy(p, destination.data(), 6);
  std::memcpy(p + 6, config_.mac.data(), 6);
  p += 12;
  if (config_.vlan_id) {
    store16(p, kEtherTypeVlan);
    store16(p + 2, *config_.vlan_id);
    p += 4;
  }
  store16(p, kEtherTypeArp);
  p += 2;
  store16(p, 1);           // Ethernet
  store16(p + 2, 0x0800);  // IPv4
  p[4] = std::byte{6};
  p[5] = std::byte{4};
  store16(p + 6, operation);
  std::memcpy(p + 8, config_.mac.data(), 6);
  std::memcpy(p + 14, config_.ip.bytes.data(), 4);
  std::memcpy(p + 18, target_mac.data(), 6);
  std::memcpy(p + 24, target_ip.bytes.data(), 4);
  const auto used = static_cast<std::size_t>(p + kArpBytes - frame.bytes.data());
  frame.size = std::max(used, kMinFrameBytes);
}

void Neighbors::forget_learnt() noexcept {
  for (auto& [ip, entry] : entries_) {
    if (entry.is_static) continue;
    Entry forgotten;
    forgotten.holds = entry.holds;
    forgotten.asked_ns = entry.asked_ns;
    entry = forgotten;
  }
}

void Neighbors::on_frame(std::span<const std::byte> frame, TimeNs now) {
  wire::FrameView view;
  if (wire::parse_frame(frame, view) != wire::Drop::kNone) return;
  if (view.kind != wire::FrameKind::kArp || view.vlan_id != config_.vlan_id) return;
  if (view.payload.size() < kArpBytes) return;
  const std::byte* p = view.payload.data();
  if (load16(p) != 1 || load16(p + 2) != 0x0800 || p[4] != std::byte{6} || p[5] != std::byte{4}) {
    return;
  }
  const std::uint16_t operation = load16(p + 6);
  if (operation != kArpRequest && operation != kArpReply) return;
  wire::MacAddress sender_mac{};
  std::memcpy(sender_mac.data(), p + 8, 6);
  wire::IpAddress sender_ip{.family = 4};
  std::memcpy(sender_ip.bytes.data(), p + 14, 4);
  wire::IpAddress target_ip{.family = 4};
  std::memcpy(target_ip.bytes.data(), p + 24, 4);
  if (target_ip != config_.ip || sender_ip == config_.ip) return;
  // A host's MAC address is no group address (RFC 1812 section 3.3.2), and a reply must be
  // addressed to us.
  if (!is_unicast(sender_mac) || !is_unicast(view.source_mac) ||
      (operation == kArpReply && !is_unicast(view.destination_mac))) {
    ++counters_.refused;
    return;
  }

  // Only requested addresses are learnt, so strangers cannot fill the table.
  const auto found = entries_.find(sender_ip);
  if (found != entries_.end() && !found->second.is_static) {
    Entry& entry = found->second;
    entry.state = NeighborState::kReachable;
    entry.mac = sender_mac;
    entry.attempts = 0;
    entry.next_ns = kNever;
    entry.expires_ns = now + config_.lifetime_ns;
  }
  ReplyLimit& limit = found == entries_.end() ? strangers_ : neighbors_;
  if (operation == kArpRequest && limit.allow(now)) {
    send_arp(kArpReply, sender_mac, sender_mac, sender_ip);
  }
}

void Neighbors::poll(TimeNs now) {
  for (auto& [ip, entry] : entries_) {
    if (entry.is_static) continue;
    if (entry.state == NeighborState::kReachable && entry.next_ns == kNever &&
        now >= entry.expires_ns - config_.lifetime_ns / 4) {
      entry.attempts = 0;
      ask(ip, entry, now);
      continue;
    }
    const bool waits = entry.state == NeighborState::kResolving ||
                       (entry.state == NeighborState::kReachable && entry.next_ns != kNever);
    if (!waits || now < entry.next_ns) continue;
    const bool expired = entry.state == NeighborState::kReachable && now >= entry.expires_ns;
    if (entry.attempts >= config_.attempts || expired) {
      if (entry.state == NeighborState::kReachable && !expired) {
        entry.next_ns = entry.expires_ns;
        continue;
      }
      entry.state = NeighborState::kFailed;
      entry.next_ns = kNever;
      continue;
    }
    ask(ip, entry, now);
  }
}

TimeNs Neighbors::deadline() const noexcept {
  TimeNs earliest = kNever;
  for (const auto& [ip, entry] : entries_) {
    if (entry.is_static) continue;
    if (entry.state == NeighborState::kReachable && entry.next_ns == kNever) {
      earliest = std::min(earliest, entry.expires_ns - config_.lifetime_ns / 4);
    } else {
      earliest = std::min(earliest, entry.next_ns);
    }
  }
  return earliest;
}

bool Neighbors::take_frame(NeighborFrame& out) {
  if (outgoing_.empty()) return false;
  out = outgoing_.front();
  outgoing_.pop_front();
  return true;
}

bool answer_echo(std::span<std::byte> frame, const wire::FrameView& view) noexcept {
  constexpr std::size_t kIcmpBytes = 8;
  if (view.kind != wire::FrameKind::kIcmpEcho || view.payload.size() < kIcmpBytes) return false;
  if (view.ip_offset + wire::kIpv4Bytes > frame.size()) return false;
  if (is_group(view.source_mac) || !is_host(view.source_ip) ||
      view.source_ip == view.destination_ip) {
    return false;
  }
  const auto icmp_offset = static_cast<std::size_t>(view.payload.data() - frame.data());
  if (icmp_offset + view.payload.size() > frame.size()) return false;

  std::uint32_t sum = 0;
  for (std::size_t i = 0; i + 1 < view.payload.size(); i += 2) sum += load16(&view.payload[i]);
  if (view.payload.size() % 2 != 0) sum += std::to_integer<std::uint32_t>(view.payload.back()) << 8;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  if (sum != 0xffff) return false;

  std::byte* ethernet = frame.data();
  std::memcpy(ethernet, view.source_mac.data(), 6);
  std::memcpy(ethernet + 6, view.destination_mac.data(), 6);
  std::byte* ip = frame.data() + view.ip_offset;
  // Swapping the addresses does not change the checksum.
  std::memcpy(ip + 12, view.destination_ip.bytes.data(), 4);
  std::memcpy(ip + 16, view.source_ip.bytes.data(), 4);
  std::byte* icmp = frame.data() + icmp_offset;
  icmp[0] = std::byte{0};
  // The type changed from 8 to 0, so the checksum grows by 0x0800 in one's complement.
  std::uint32_t checksum = load16(icmp + 2) + 0x0800u;
  checksum = (checksum & 0xffff) + (checksum >> 16);
  store16(icmp + 2, static_cast<std::uint16_t>(checksum));
  return true;
}

}  // namespace gradwire::port
