// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Answers to ping. Pure; any thread.
#pragma once

#include <cstddef>
#include <span>

#include "wire/frame.h"

namespace gradwire::port {

/// Turns an echo request of ICMP (RFC 792) or ICMPv6 (RFC 4443) into its reply, in place. `frame`
/// starts with the Ethernet header; `view` is what wire::parse_frame made of it, of kind kIcmpEcho.
/// @return false if the frame is too short, its ICMP checksum is wrong, or its source is a group
/// address, no host's address or our own; then the frame is unchanged.
[[nodiscard]] bool answer_echo(std::span<std::byte> frame, const wire::FrameView& view) noexcept;

}  // namespace gradwire::port
