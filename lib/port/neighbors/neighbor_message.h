// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What hosts of a network ask and tell each other about MAC addresses: ARP (RFC 826) over IPv4,
/// neighbor discovery (neighbor_discovery.h) over IPv6. Bytes of frames, no state. Any thread;
/// nothing here allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "wire/frame.h"

namespace gradwire::port {

/// A frame to send: what is sent here needs no more than 96 bytes.
struct NeighborFrame {
  std::array<std::byte, 96> bytes{};
  std::size_t size = 0;
  [[nodiscard]] std::span<const std::byte> view() const noexcept { return {bytes.data(), size}; }
};

/// A question for the MAC address of `target_ip`, or the answer: that `sender_ip` has `sender_mac`.
struct NeighborMessage {
  bool is_question = false;
  wire::MacAddress sender_mac{};
  wire::IpAddress sender_ip;  ///< a question that only looks whether an address is free has zeros
  wire::MacAddress target_mac{};  ///< of an answer: whom it is for
  wire::IpAddress target_ip;
};

/// How a port's frames begin.
struct NeighborSender {
  wire::MacAddress mac{};
  wire::IpAddress ip;
  std::optional<std::uint16_t> vlan_id;
};

/// @param to  nothing: to everybody on the network.
[[nodiscard]] NeighborFrame make_question(const NeighborSender& from, const wire::IpAddress& target,
                                          const std::optional<wire::MacAddress>& to) noexcept;
/// Whether somebody else has the sender's own address (RFC 5227 section 2.1.1, RFC 4862
/// section 5.4).
[[nodiscard]] NeighborFrame make_probe(const NeighborSender& from) noexcept;
[[nodiscard]] NeighborFrame make_answer(const NeighborSender& from,
                                        const NeighborMessage& question) noexcept;

enum class MessageVerdict : std::uint8_t {
  kNone,     ///< no such message
  kRefused,  ///< from a group of hosts, or an answer to one
  kGood,
};

/// Of a frame that wire::parse_frame took.
[[nodiscard]] MessageVerdict read_message(const wire::FrameView& frame,
                                          NeighborMessage& out) noexcept;

/// By what an address of that family is found, for texts.
[[nodiscard]] const char* protocol_name(const wire::IpAddress& ip) noexcept;

}  // namespace gradwire::port
