// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Which addresses the kernel of this host has in this network namespace. Control thread;
/// allocates.
#pragma once

#include <string>

namespace gradwire::host {

/// @param ip  an IPv4 or IPv6 address.
/// @return the interface on which the kernel has this address; empty if it has none.
[[nodiscard]] std::string interface_with_address(const std::string& ip);

}  // namespace gradwire::host
