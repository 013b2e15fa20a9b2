// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Packets as text, for traces. Any thread; allocates strings.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::sim {

/// "data 17: op 3 chunk 5 hop 2, 16 of fp32 on lane 0", ...
[[nodiscard]] std::string describe_packet(const wire::Packet& packet);
/// The packet of a frame, over IPv4 or IPv6. @return why it is dropped, if it is.
[[nodiscard]] wire::Drop decode(const wire::FrameView& frame, wire::Packet& out) noexcept;
/// The same as describe_packet() of a whole frame.
[[nodiscard]] std::string describe_frame(std::span<const std::byte> frame);

}  // namespace gradwire::sim
