// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Works around limits of the memif driver of DPDK. A server end does not start if a killed
/// one left its socket behind. A client end connects only once, when its port is started, and
/// cannot start before its server listens; if the server ends, the link stays down until the port
/// is stopped and started again. Control thread; allocates; makes system calls.
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

/// @return whether a server listens at the socket that `end` would connect to. The server does not
/// notice the test.
[[nodiscard]] bool memif_server_listens(const MemifEnd& end);

/// Call it before the EAL creates its devices: removes socket files of killed servers at the paths
/// that `eal_arguments` give to server ends (--vdev net_memif...).
/// @return what was removed; an error if somebody listens there, or if something other than a
/// socket is in the way.
[[nodiscard]] Result<std::vector<std::string>> remove_stale_memif_sockets(
    std::span<const std::string> eal_arguments);

}  // namespace gradwire::port
