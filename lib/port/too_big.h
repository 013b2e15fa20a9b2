// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What routers say of packets that are too large for their next link (RFC 1191, RFC 792 type 3
/// code 4; over IPv6 RFC 4443 type 2). Anybody can say it, so it explains why a group does not
/// form, and changes nothing. The control thread owns a table; it is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "wire/frame.h"

namespace gradwire::port {

struct TooBig {
  wire::IpAddress router;
  wire::IpAddress destination;  ///< of the packet that was too large
  std::uint32_t packet_bytes = 0;
  std::uint32_t mtu = 0;  ///< of the next link; 0 = the router does not say
  friend bool operator==(const TooBig&, const TooBig&) = default;
};

/// Reads it from a frame, of which the end may be missing.
/// @return nothing unless it is about a UDP datagram from `own` ip.
[[nodiscard]] std::optional<TooBig> read_too_big(std::span<const std::byte> frame,
                                                 const wire::IpAddress& own) noexcept;

/// The last such message about each of a few destinations.
class TooBigTable {
 public:
  static constexpr std::size_t kDestinations = 64;

  /// @return whether it says something new.
  bool add(const TooBig& message);
  [[nodiscard]] std::optional<TooBig> find(const wire::IpAddress& destination) const noexcept;

 private:
  std::vector<TooBig> messages_;
  std::size_t next_ = 0;  ///< to be replaced
};

}  // namespace gradwire::port
