// SPDX-License-Identifier: BSD-3-Clause
#include "port/neighbors/neighbor_discovery.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "port/ethernet_start.h"
#include "wire/internet_checksum.h"

namespace gradwire::port {
namespace {

constexpr std::uint16_t kEtherTypeIpv6 = 0x86dd;
constexpr std::uint8_t kProtocolHopByHop = 0;
constexpr std::uint8_t kProtocolIcmpv6 = 58;
constexpr std::uint8_t kSolicitation = 135;
constexpr std::uint8_t kAdvertisement = 136;
constexpr std::uint8_t kListenerReport = 143;
constexpr std::uint8_t kNotForwarded = 255;
constexpr std::size_t kMessageBytes = 24;  // without options
constexpr std::size_t kTargetOffset = 8;
constexpr std::size_t kFlagsOffset = 4;
constexpr unsigned kSolicited = 0x40;
constexpr unsigned kOverride = 0x20;
constexpr std::uint8_t kSourceLinkAddress = 1;  // options
constexpr std::uint8_t kTargetLinkAddress = 2;
constexpr std::size_t kOptionBytes = 8;

constexpr wire::IpAddress kNoAddress{.family = 6};

void store_ip(std::byte* at, const wire::IpAddress& ip) noexcept {
  std::memcpy(at, ip.bytes.data(), ip.bytes.size());
}

wire::IpAddress load_ip(const std::byte* at) noexcept {
  wire::IpAddress ip{.family = 6};
  std::memcpy(ip.bytes.data(), at, ip.bytes.size());
  return ip;
}

bool is_group(const wire::IpAddress& ip) noexcept { return ip.bytes[0] == 0xff; }

/// @return where what follows the IPv6 header goes.
std::byte* put_ipv6(std::byte* ip, std::uint8_t protocol, std::uint8_t hops, std::size_t bytes,
                    const wire::IpAddress& source, const wire::IpAddress& destination) noexcept {
  ip[0] = std::byte{0x60};
  store16(ip + 4, static_cast<std::uint16_t>(bytes));
  ip[6] = std::byte{protocol};
  ip[7] = std::byte{hops};
  store_ip(ip + 8, source);
  store_ip(ip + 24, destination);
  return ip + wire::kIpv6Bytes;
}

/// What a solicitation and an advertisement have in common.
struct Draft {
  std::uint8_t type = 0;
  unsigned flags = 0;
  std::uint8_t option = 0;  ///< the sender's MAC address, under this name; 0 = none
  wire::IpAddress source;
  wire::IpAddress destination;
  wire::IpAddress target;
};

NeighborFrame make_message(const NeighborSender& from, const wire::MacAddress& to,
                           const Draft& draft) noexcept {
  NeighborFrame frame;
  const std::size_t bytes = kMessageBytes + (draft.option != 0 ? kOptionBytes : 0);
  std::byte* const ip = put_ethernet(frame, from, to, kEtherTypeIpv6);
  std::byte* const message =
      put_ipv6(ip, kProtocolIcmpv6, kNotForwarded, bytes, draft.source, draft.destination);
  message[0] = std::byte{draft.type};
  message[kFlagsOffset] = static_cast<std::byte>(draft.flags);
  store_ip(message + kTargetOffset, draft.target);
  if (draft.option != 0) {
    std::byte* const option = message + kMessageBytes;
    option[0] = std::byte{draft.option};
    option[1] = std::byte{1};  // in units of 8 bytes
    std::memcpy(option + 2, from.mac.data(), from.mac.size());
  }
  wire::put_icmpv6_sum(draft.source, draft.destination, {message, bytes});
  const auto used = static_cast<std::size_t>(message + bytes - frame.bytes.data());
  frame.size = std::max(used, kMinFrameBytes);
  return frame;
}

/// Goes through the options.
/// @return false if one has no length or does not end within the message.
bool read_options(std::span<const std::byte> options, std::uint8_t wanted,
                  std::optional<wire::MacAddress>& mac) noexcept {
  while (!options.empty()) {
    if (options.size() < 2) return false;
    const std::size_t bytes = std::to_integer<std::size_t>(options[1]) * 8;
    if (bytes == 0 || bytes > options.size()) return false;
    if (std::to_integer<std::uint8_t>(options[0]) == wanted && bytes == kOptionBytes) {
      mac.emplace();
      std::memcpy(mac->data(), &options[2], mac->size());
    }
    options = options.subspan(bytes);
  }
  return true;
}

}  // namespace

wire::IpAddress all_nodes() noexcept {
  wire::IpAddress group{.family = 6};
  group.bytes[0] = 0xff;
  group.bytes[1] = 2;
  group.bytes[15] = 1;
  return group;
}

wire::IpAddress solicited_node(const wire::IpAddress& ip) noexcept {
  wire::IpAddress group = all_nodes();
  group.bytes[11] = 1;
  group.bytes[12] = 0xff;
  std::copy(ip.bytes.begin() + 13, ip.bytes.end(), group.bytes.begin() + 13);
  return group;
}

wire::MacAddress group_mac(const wire::IpAddress& group) noexcept {
  return {0x33, 0x33, group.bytes[12], group.bytes[13], group.bytes[14], group.bytes[15]};
}

NeighborFrame make_solicitation(const NeighborSender& from, const wire::IpAddress& target,
                                const std::optional<wire::MacAddress>& to) noexcept {
  const wire::IpAddress group = solicited_node(target);
  return make_message(from, to.value_or(group_mac(group)),
                      {.type = kSolicitation,
                       .option = kSourceLinkAddress,
                       .source = from.ip,
                       .destination = to ? target : group,
                       .target = target});
}

NeighborFrame make_duplicate_question(const NeighborSender& from) noexcept {
  const wire::IpAddress group = solicited_node(from.ip);
  return make_message(
      from, group_mac(group),
      {.type = kSolicitation, .source = kNoAddress, .destination = group, .target = from.ip});
}

NeighborFrame make_advertisement(const NeighborSender& from,
                                 const NeighborMessage& question) noexcept {
  const bool to_all = question.sender_ip == kNoAddress;
  const wire::IpAddress destination = to_all ? all_nodes() : question.sender_ip;
  return make_message(from, to_all ? group_mac(destination) : question.sender_mac,
                      {.type = kAdvertisement,
                       .flags = kOverride | (to_all ? 0 : kSolicited),
                       .option = kTargetLinkAddress,
                       .source = from.ip,
                       .destination = destination,
                       .target = from.ip});
}

NeighborFrame make_membership_report(const NeighborSender& from) noexcept {
  // All routers that know MLDv2 (RFC 3810 section 5.2.14).
  wire::IpAddress routers = all_nodes();
  routers.bytes[15] = 0x16;
  // Asks routers to look at it though it is not theirs (RFC 2711).
  constexpr std::array<std::uint8_t, 8> kRouterAlert = {kProtocolIcmpv6, 0, 5, 2, 0, 0, 1, 0};
  constexpr std::size_t kReportBytes = 8 + 20;
  NeighborFrame frame;
  std::byte* const ip = put_ethernet(frame, from, group_mac(routers), kEtherTypeIpv6);
  std::byte* const alert =
      put_ipv6(ip, kProtocolHopByHop, 1, kRouterAlert.size() + kReportBytes, kNoAddress, routers);
  std::memcpy(alert, kRouterAlert.data(), kRouterAlert.size());
  std::byte* const report = alert + kRouterAlert.size();
  report[0] = std::byte{kListenerReport};
  store16(report + 6, 1);    // records
  report[8] = std::byte{4};  // changes to exclude nobody: hears whoever sends to the group
  store_ip(report + 12, solicited_node(from.ip));
  wire::put_icmpv6_sum(kNoAddress, routers, {report, kReportBytes});
  frame.size = static_cast<std::size_t>(report + kReportBytes - frame.bytes.data());
  return frame;
}

MessageVerdict read_discovery(const wire::FrameView& frame, NeighborMessage& out) noexcept {
  const auto message = frame.payload;
  if (frame.kind != wire::FrameKind::kDiscovery || message.size() < kMessageBytes ||
      !wire::icmpv6_sum_ok(frame.source_ip, frame.destination_ip, message)) {
    return MessageVerdict::kNone;
  }
  const wire::IpAddress target = load_ip(message.data() + kTargetOffset);
  if (is_group(target)) return MessageVerdict::kNone;
  out.is_question = std::to_integer<std::uint8_t>(message[0]) == kSolicitation;
  std::optional<wire::MacAddress> said;
  if (!read_options(message.subspan(kMessageBytes),
                    out.is_question ? kSourceLinkAddress : kTargetLinkAddress, said)) {
    return MessageVerdict::kNone;
  }
  const bool anonymous = frame.source_ip == kNoAddress;
  bool good = is_unicast(frame.source_mac) && !is_group(frame.source_ip);
  if (out.is_question) {
    // Who has no address yet asks its group, and has no MAC address to be answered at.
    if (anonymous && (said || frame.destination_ip != solicited_node(target))) {
      return MessageVerdict::kNone;
    }
    out.sender_ip = frame.source_ip;
    out.target_ip = target;
  } else {
    const bool solicited = (std::to_integer<unsigned>(message[kFlagsOffset]) & kSolicited) != 0;
    if (anonymous || (solicited && is_group(frame.destination_ip))) return MessageVerdict::kNone;
    good &= is_group(frame.destination_ip) || is_unicast(frame.destination_mac);
    out.sender_ip = target;
    out.target_ip = frame.destination_ip;
    out.target_mac = frame.destination_mac;
  }
  out.sender_mac = said.value_or(frame.source_mac);
  return good && is_unicast(out.sender_mac) ? MessageVerdict::kGood : MessageVerdict::kRefused;
}

}  // namespace gradwire::port
