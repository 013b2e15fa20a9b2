// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the memif driver of DPDK 22.11 leaves to whoever uses it. Its server end does not start
/// where a killed one left its socket. Its client end connects once, when its port is started, and
/// cannot start before its server listens; when the server goes, the link is down for good, unless
/// the port is stopped and started anew. Control thread; allocates; makes system calls.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gradwire::port {

/// One end of a link, as its device arguments say.
struct MemifEnd {
  bool client = true;
  std::string socket = "/run/memif.sock";
  bool abstract = true;  ///< a name without a file
};
[[nodiscard]] MemifEnd memif_end(std::string_view devargs);

/// @return whether a server listens where `end` would connect. The server does not notice.
[[nodiscard]] bool memif_server_listens(const MemifEnd& end);

/// Before the EAL makes its devices: removes the socket files that killed servers left where
/// `eal_arguments` have a server end (--vdev net_memif...).
/// @return what was removed; an error where somebody else listens there, or where something else
/// than a socket is in the way.
[[nodiscard]] Result<std::vector<std::string>> remove_stale_memif_sockets(
    std::span<const std::string> eal_arguments);

}  // namespace gradwire::port
