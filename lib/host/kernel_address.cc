// SPDX-License-Identifier: BSD-3-Clause
#include "host/kernel_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <cstring>

namespace gradwire::host {

std::string interface_with_address(const std::string& ip) {
  in_addr wanted{};
  ifaddrs* all = nullptr;
  if (inet_pton(AF_INET, ip.c_str(), &wanted) != 1 || getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in own{};
    std::memcpy(&own, i->ifa_addr, sizeof own);
    if (own.sin_addr.s_addr == wanted.s_addr) found = i->ifa_name;
  }
  freeifaddrs(all);
  return found;
}

}  // namespace gradwire::host
