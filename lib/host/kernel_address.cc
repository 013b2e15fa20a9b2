// SPDX-License-Identifier: BSD-3-Clause
#include "host/kernel_address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <array>
#include <cstring>

namespace gradwire::host {

std::string interface_with_address(const std::string& ip) {
  const int family = ip.find(':') == std::string::npos ? AF_INET : AF_INET6;
  std::array<unsigned char, sizeof(in6_addr)> wanted{};
  ifaddrs* all = nullptr;
  if (inet_pton(family, ip.c_str(), wanted.data()) != 1 || getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* i = all; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != family) continue;
    std::array<unsigned char, sizeof(in6_addr)> own{};
    if (family == AF_INET) {
      sockaddr_in address{};
      std::memcpy(&address, i->ifa_addr, sizeof address);
      std::memcpy(own.data(), &address.sin_addr, sizeof address.sin_addr);
    } else {
      sockaddr_in6 address{};
      std::memcpy(&address, i->ifa_addr, sizeof address);
      std::memcpy(own.data(), &address.sin6_addr, sizeof address.sin6_addr);
    }
    if (own == wanted) found = i->ifa_name;
  }
  freeifaddrs(all);
  return found;
}

}  // namespace gradwire::host
