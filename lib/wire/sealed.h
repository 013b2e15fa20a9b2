// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What sealing and opening have to know of a packet's bytes: doc/security.md, A sealed packet. Any
/// thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/packet.h"

namespace gradwire::wire {

/// Flags of a packet that is sealed (doc/security.md, A sealed packet), and where they lie.
inline constexpr std::uint8_t kAuthenticatedFlag = 2;
inline constexpr std::uint8_t kEncryptedFlag = 4;
static_assert(kSealFlags == (kAuthenticatedFlag | kEncryptedFlag));
inline constexpr std::size_t kFlagsAt = 2;
/// What a sealed packet ends with.
inline constexpr std::size_t kSealTagBytes = 16;

/// What a packet that was encoded, or whose header was decoded, says of itself.
struct Kind {
  PacketType type{};
  std::uint64_t packet_number = 0;
};
/// @param packet  at least kHeaderBytes.
[[nodiscard]] Kind kind_of(const std::byte* packet) noexcept;
/// The payload's CRC that a packet's header has. @param packet  at least kHeaderBytes.
[[nodiscard]] std::uint32_t payload_crc_of(const std::byte* packet) noexcept;
/// What a header's CRC is XORed with: decode_header()'s address_crc that fits.
/// @param packet  at least kHeaderBytes.
[[nodiscard]] std::uint32_t header_crc_error(std::span<const std::byte> packet) noexcept;
/// Computes a header's CRC anew.
/// @param packet       at least kHeaderBytes.
/// @param address_crc  what it is XORed with: over IPv6 nothing, until complete_ipv6().
void renew_header_crc(std::byte* packet, std::uint32_t address_crc = 0) noexcept;

}  // namespace gradwire::wire
