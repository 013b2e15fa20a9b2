// SPDX-License-Identifier: BSD-3-Clause
#include "port/memif/wake_socket.h"

#include <dirent.h>
#include <linux/if_packet.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

namespace gradwire::port {

namespace {

/// Files of this process that are sockets of that domain, in ascending order.
std::vector<int> sockets_of(int domain) {
  std::vector<int> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> files(opendir("/proc/self/fd"), &closedir);
  if (files == nullptr) return found;
  while (const dirent* entry = readdir(files.get())) {
    int fd = -1;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, end, fd).ptr != end) continue;
    int is = -1;
    socklen_t size = sizeof is;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &is, &size) == 0 && is == domain) found.push_back(fd);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::vector<int> xdp_sockets() { return sockets_of(AF_XDP); }

int only_new(const std::vector<int>& before, const std::vector<int>& after) noexcept {
  int found = -1;
  for (const int fd : after) {
    if (std::binary_search(before.begin(), before.end(), fd)) continue;
    if (found != -1) return -1;
    found = fd;
  }
  return found;
}

int packet_socket_of(unsigned if_index) {
  int found = -1;
  for (const int fd : sockets_of(AF_PACKET)) {
    sockaddr_ll address{};
    socklen_t size = sizeof address;
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
        address.sll_ifindex < 0 || static_cast<unsigned>(address.sll_ifindex) != if_index) {
      continue;
    }
    if (found != -1) return -1;
    found = fd;
  }
  return found;
}

std::uint64_t packets_dropped(int packet_socket) noexcept {
  tpacket_stats stats{};
  socklen_t size = sizeof stats;
  if (getsockopt(packet_socket, SOL_PACKET, PACKET_STATISTICS, &stats, &size) != 0) return 0;
  return stats.tp_drops;
}

}  // namespace gradwire::port
