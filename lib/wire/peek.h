// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whose a packet says it is, before anything dear is done with it: the CRC of a hello's padding is
/// many times the rest. Any thread; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/packet.h"

namespace gradwire::wire {

/// Nothing of it is checked. A hello has the group's key, any other packet a connection's id.
struct Addressee {
  bool is_hello = false;
  std::uint32_t connection_id = 0;
  GroupKey key;
};
/// @return what `udp_payload` says; connection 0, which nobody has, where it is too short to.
[[nodiscard]] Addressee addressee_of(std::span<const std::byte> udp_payload) noexcept;

/// @return kNone where decode() would not refuse the packet for its length, version, header CRC or
/// type.
[[nodiscard]] Drop check_header(std::span<const std::byte> udp_payload) noexcept;

}  // namespace gradwire::wire
