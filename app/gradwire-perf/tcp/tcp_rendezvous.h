// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Finding the other ranks if they share no directory: every process connects to rank 0's first
/// member at tcp://HOST:PORT, says who it is, and gets the whole table. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "options.h"
#include "rendezvous.h"
#include "tcp/tcp_socket.h"

namespace gradwire::perf {

/// Whether the text begins like a rendezvous by TCP.
[[nodiscard]] bool is_tcp_rendezvous(const std::string& rendezvous);
/// Host and port of tcp://HOST:PORT; an IPv6 address stands in brackets.
[[nodiscard]] Result<std::pair<std::string, std::uint16_t>> parse_tcp_rendezvous(
    const std::string& rendezvous);
/// @param group_id  of the group, if this is rank 0's first member.
/// @return kTimedOut naming a process that did not come, or rank 0.
[[nodiscard]] Result<Meeting> meet_by_tcp(const Options& options, std::uint64_t group_id,
                                          std::span<const std::byte> own_info,
                                          Clock::time_point deadline);

}  // namespace gradwire::perf
