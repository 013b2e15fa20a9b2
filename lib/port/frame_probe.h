// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Tests whether the kernel sends frames of a given length through an interface. The af_packet
/// driver cannot tell: if a frame is too long for the other end of a veth, it stays in the socket's
/// ring, the kernel retries it for ever, and no later frame leaves. A plain packet socket gets an
/// error. The control thread calls it; no call waits.
#pragma once

#include <cstdint>
#include <optional>

#include "wire/frame.h"

namespace gradwire::port {

enum class FrameVerdict : std::uint8_t {
  kPasses,
  kTooLong,  ///< only shorter frames pass
  kUnknown,  ///< no frame passes, or the socket could not be opened
};

/// Sends a frame of `frame_bytes` that no receiver interprets (EtherType 0x88b5, for local
/// experiments), and, if the kernel refuses it, a short one.
[[nodiscard]] FrameVerdict probe_frame(unsigned if_index, const wire::MacAddress& from,
                                       const wire::MacAddress& to,
                                       std::optional<std::uint16_t> vlan_id,
                                       std::size_t frame_bytes);

}  // namespace gradwire::port
