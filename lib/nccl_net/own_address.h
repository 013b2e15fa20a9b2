// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The address at which other processes reach this one by TCP, to make links. Any thread; reads the
/// environment and the machine's interfaces.
#pragma once

#include <ifaddrs.h>
#include <netinet/in.h>

#include <string>

namespace gradwire::nccl_net {

/// GRADWIRE_NCCL_ADDRESS if it is set; else of an interface that NCCL_SOCKET_IFNAME allows (names'
/// beginnings, by commas; "=" before them: whole names, "^": all others); else of the first that is
/// up. Bridges that docker and libvirt make for their guests (docker*, virbr*) lead to no other
/// host: they come behind all others, and the loopback's behind them. IPv4 before IPv6.
/// @param address  gets a sockaddr_in or a sockaddr_in6, port 0.
/// @return false: `why` says what is wrong.
bool own_address(sockaddr_in6& address, std::string& why);

/// The same of these interfaces.
/// @param wanted  NCCL_SOCKET_IFNAME; nullptr: not set
bool choose_address(const ifaddrs* all, const char* wanted, sockaddr_in6& address,
                    std::string& why);

}  // namespace gradwire::nccl_net
