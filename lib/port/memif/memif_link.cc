// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/memif_link.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>
#include <fstream>
#include <ios>
#include <sstream>

#include "ipc/stale_socket.h"
#include "port/driver_table.h"

namespace gradwire::port {
namespace {

constexpr std::string_view kMemif = "net_memif";

/// The devices that the arguments add: "--vdev NAME,ARGUMENTS" or "--vdev=NAME,ARGUMENTS".
std::vector<std::string_view> vdevs_of(std::span<const std::string> eal_arguments) {
  constexpr std::string_view kOption = "--vdev";
  std::vector<std::string_view> found;
  for (std::size_t i = 0; i < eal_arguments.size(); ++i) {
    const std::string_view argument = eal_arguments[i];
    if (argument == kOption && i + 1 < eal_arguments.size()) {
      found.push_back(eal_arguments[++i]);
    } else if (argument.starts_with(kOption) && argument.substr(kOption.size()).starts_with('=')) {
      found.push_back(argument.substr(kOption.size() + 1));
    }
  }
  return found;
}

/// A name without a file belongs to a network namespace. The kernel lists these sockets in columns:
/// the fourth has the flags, and the name follows an @.
bool is_abstract_listener(const std::string& name) {
  constexpr unsigned long kAcceptsConnections = 0x10000;
  std::ifstream sockets("/proc/self/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (!line.ends_with(" @" + name)) continue;
    std::istringstream columns(line);
    std::string number;
    std::string references;
    std::string protocol;
    unsigned long flags = 0;
    columns >> number >> references >> protocol >> std::hex >> flags;
    if (columns && (flags & kAcceptsConnections) != 0) return true;
  }
  return false;
}

}  // namespace

MemifEnd memif_end(std::string_view devargs) {
  MemifEnd end;
  const std::string_view role = devarg(devargs, "role").value_or("client");
  // The driver still accepts the names from before DPDK 20.11.
  end.client = role != "server" && role != "master";
  if (const auto socket = devarg(devargs, "socket")) end.socket = *socket;
  end.abstract = devarg(devargs, "socket-abstract").value_or("yes") != "no";
  return end;
}

bool memif_server_listens(const MemifEnd& end) {
  if (end.abstract) return is_abstract_listener(end.socket);
  sockaddr_un address = {};
  if (end.socket.empty() || end.socket.size() >= sizeof(address.sun_path)) return false;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, end.socket.data(), end.socket.size());
  return ipc::is_socket_alive(address);
}

Result<std::vector<std::string>> remove_stale_memif_sockets(
    std::span<const std::string> eal_arguments) {
  std::vector<std::string> removed;
  for (const std::string_view vdev : vdevs_of(eal_arguments)) {
    const std::size_t comma = vdev.find(',');
    if (!vdev.starts_with(kMemif) || comma == std::string_view::npos) continue;
    const MemifEnd end = memif_end(vdev.substr(comma + 1));
    if (end.client || end.abstract) continue;
    const auto stale = ipc::remove_stale_socket(end.socket);
    if (!stale) {
      return fail(stale.error().code,
                  fmt::format("--vdev {}: {}", vdev.substr(0, comma), stale.error().message));
    }
    if (*stale) removed.push_back(end.socket);
  }
  return removed;
}

}  // namespace gradwire::port
