// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The checksum of IP's protocols (RFC 1071), and of what lies above IPv6 (RFC 8200 section 8.1).
/// Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/frame.h"

namespace gradwire::wire {

/// The one's complement sum of 16-bit words, as they lie in memory: whatever the host's byte order,
/// what is stored of it as two bytes is right (RFC 1071 section 2).
class InternetSum {
 public:
  /// `bytes` begins at an even place of what is summed; an odd last byte is followed by nothing.
  void add(std::span<const std::byte> bytes) noexcept;
  /// A number of 16 bits that the sum has in network byte order.
  void add16(std::uint16_t value) noexcept;
  [[nodiscard]] std::uint16_t folded() const noexcept;

 private:
  std::uint64_t sum_ = 0;
};

/// The sum of IPv6's pseudo-header: both addresses, the length of what follows, its protocol.
[[nodiscard]] InternetSum pseudo_header_sum(const IpAddress& source, const IpAddress& destination,
                                            std::uint8_t protocol, std::size_t bytes) noexcept;

/// Whether an ICMPv6 message's checksum is right.
[[nodiscard]] bool icmpv6_sum_ok(const IpAddress& source, const IpAddress& destination,
                                 std::span<const std::byte> message) noexcept;
/// Computes an ICMPv6 message's checksum and puts it into its place. `message` has at least 4
/// bytes.
void put_icmpv6_sum(const IpAddress& source, const IpAddress& destination,
                    std::span<std::byte> message) noexcept;

}  // namespace gradwire::wire
