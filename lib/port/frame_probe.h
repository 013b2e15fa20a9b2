// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Whether the kernel sends a frame of a length by an interface. af_packet's driver cannot say: a
/// frame that is too long for the other end of a veth stays in the socket's ring, the kernel tries
/// it again and again, and whatever comes behind it never leaves. A plain packet socket is told.
/// The control thread calls it; no call waits.
#pragma once

#include <cstdint>
#include <optional>

#include "wire/frame.h"

namespace gradwire::port {

enum class FrameVerdict : std::uint8_t {
  kPasses,
  kTooLong,  ///< short frames pass
  kUnknown,  ///< neither passes, or there is no such socket
};

/// Sends a frame of `frame_bytes` that nobody takes for anything (EtherType 0x88b5, for experiments
/// on a local network), and if the kernel refuses it a short one.
[[nodiscard]] FrameVerdict probe_frame(unsigned if_index, const wire::MacAddress& from,
                                       const wire::MacAddress& to,
                                       std::optional<std::uint16_t> vlan_id,
                                       std::size_t frame_bytes);

}  // namespace gradwire::port
