// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/own_address.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <string>

namespace gradwire::nccl_net {
namespace {

/// Interfaces as getifaddrs() gives them.
class Interfaces {
 public:
  Interfaces& add(const std::string& name, const std::string& address, unsigned flags = IFF_UP) {
    One& one = all_.emplace_back();
    one.name = name;
    auto& v4 = reinterpret_cast<sockaddr_in&>(one.address);
    if (inet_pton(AF_INET, address.c_str(), &v4.sin_addr) == 1) {
      v4.sin_family = AF_INET;
    } else {
      one.address = {};
      one.address.sin6_family = AF_INET6;
      REQUIRE(inet_pton(AF_INET6, address.c_str(), &one.address.sin6_addr) == 1);
    }
    one.entry.ifa_name = one.name.data();
    one.entry.ifa_flags = flags;
    one.entry.ifa_addr = reinterpret_cast<sockaddr*>(&one.address);
    if (all_.size() > 1) all_[all_.size() - 2].entry.ifa_next = &one.entry;
    return *this;
  }
  /// @return the address that is chosen, or why there is none.
  std::string chosen(const char* wanted = nullptr) {
    sockaddr_in6 address{};
    std::string why;
    if (!choose_address(&all_.front().entry, wanted, address, why)) return why;
    char text[INET6_ADDRSTRLEN];
    const bool is_v4 = address.sin6_family == AF_INET;
    const void* from =
        is_v4 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in&>(address).sin_addr)
              : &address.sin6_addr;
    return inet_ntop(address.sin6_family, from, text, sizeof(text));
  }

 private:
  struct One {
    std::string name;
    sockaddr_in6 address{};
    ifaddrs entry{};
  };
  std::deque<One> all_;  // places stay
};

TEST_CASE("an interface that leads to other hosts is chosen") {
  Interfaces all;
  all.add("lo", "127.0.0.1", IFF_UP | IFF_LOOPBACK)
      .add("docker0", "172.17.0.1")
      .add("virbr0", "192.168.122.1")
      .add("eth0", "10.0.0.5", 0)
      .add("eth1", "fe80::1")
      .add("eth1", "2001:db8::1")
      .add("eth2", "10.1.0.5");
  CHECK(all.chosen() == "10.1.0.5");
  CHECK(all.chosen("") == "10.1.0.5");
  CHECK(all.chosen("^eth2") == "2001:db8::1");
  CHECK(all.chosen("eth") == "10.1.0.5");
  CHECK(all.chosen("=eth1") == "2001:db8::1");
}

TEST_CASE("what is named is taken, whatever it is") {
  Interfaces all;
  all.add("lo", "127.0.0.1", IFF_UP | IFF_LOOPBACK)
      .add("docker0", "172.17.0.1")
      .add("eth0", "10.0.0.5");
  CHECK(all.chosen("docker0") == "172.17.0.1");
  CHECK(all.chosen("=lo") == "127.0.0.1");
  CHECK(all.chosen("^eth") == "172.17.0.1");
  CHECK(all.chosen("ib").find("NCCL_SOCKET_IFNAME=ib") != std::string::npos);
}

TEST_CASE("without any other, bridges come before the loopback") {
  Interfaces all;
  all.add("lo", "127.0.0.1", IFF_UP | IFF_LOOPBACK).add("virbr0", "192.168.122.1");
  CHECK(all.chosen() == "192.168.122.1");
  Interfaces only;
  only.add("lo", "127.0.0.1", IFF_UP | IFF_LOOPBACK);
  CHECK(only.chosen() == "127.0.0.1");
}

}  // namespace
}  // namespace gradwire::nccl_net
