// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/own_address.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace gradwire::nccl_net {
namespace {

bool parse(const std::string& text, sockaddr_in6& address) {
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  address = {};
  if (inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    return true;
  }
  address = {};
  address.sin6_family = AF_INET6;
  return inet_pton(AF_INET6, text.c_str(), &address.sin6_addr) == 1;
}

bool allows(const char* wanted, const std::string& name) {
  if (wanted == nullptr || *wanted == 0) return true;
  const bool all_but = *wanted == '^';
  if (all_but) ++wanted;
  const bool whole = *wanted == '=';
  if (whole) ++wanted;
  std::istringstream names(wanted);
  for (std::string one; std::getline(names, one, ',');) {
    if (whole ? name == one : name.rfind(one, 0) == 0) return !all_but;
  }
  return all_but;
}

constexpr int kWorst = 6;

/// The lower the better; negative: not to be used.
int rank_of(const ifaddrs& one, const char* wanted) {
  if (one.ifa_addr == nullptr || (one.ifa_flags & IFF_UP) == 0) return -1;
  if (!allows(wanted, one.ifa_name)) return -1;
  const std::string name = one.ifa_name;
  const bool of_guests = name.rfind("docker", 0) == 0 || name.rfind("virbr", 0) == 0;
  const int rank = (one.ifa_flags & IFF_LOOPBACK) != 0 ? 4 : of_guests ? 2 : 0;
  if (one.ifa_addr->sa_family == AF_INET) return rank;
  if (one.ifa_addr->sa_family != AF_INET6) return -1;
  sockaddr_in6 address;
  std::memcpy(&address, one.ifa_addr, sizeof(address));
  return IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr) ? -1 : rank + 1;
}

}  // namespace

bool own_address(sockaddr_in6& address, std::string& why) {
  if (const char* text = std::getenv("GRADWIRE_NCCL_ADDRESS")) {
    if (parse(text, address)) return true;
    why = std::string("GRADWIRE_NCCL_ADDRESS=") + text + ": an address of IPv4 or IPv6 is wanted";
    return false;
  }
  const char* wanted = std::getenv("NCCL_SOCKET_IFNAME");
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) {
    why = std::string("reading the machine's interfaces: ") + std::strerror(errno);
    return false;
  }
  const bool found = choose_address(all, wanted, address, why);
  freeifaddrs(all);
  return found;
}

bool choose_address(const ifaddrs* all, const char* wanted, sockaddr_in6& address,
                    std::string& why) {
  int best = kWorst;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    const int rank = rank_of(*one, wanted);
    if (rank < 0 || rank >= best) continue;
    best = rank;
    address = {};
    std::memcpy(&address, one->ifa_addr,
                one->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  }
  if (best < kWorst) return true;
  why = std::string("no interface that is up has an address") +
        (wanted != nullptr ? std::string(" and is allowed by NCCL_SOCKET_IFNAME=") + wanted : "");
  return false;
}

}  // namespace gradwire::nccl_net
