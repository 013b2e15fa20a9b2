// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Frames of ARP and a configuration, for the tests of the neighbor table: the port is 10.0.0.1,
/// its neighbor 10.0.0.2.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <vector>

#include "port/neighbors/neighbors.h"

namespace gradwire::port::test {

inline constexpr TimeNs kMs = 1'000'000;

inline wire::IpAddress address(const char* text) { return *wire::parse_ip(text); }
inline wire::MacAddress mac(const char* text) { return *wire::parse_mac(text); }

inline NeighborsConfig config() {
  NeighborsConfig out;
  out.mac = mac("02:00:00:00:00:01");
  out.ip = address("10.0.0.1");
  out.prefix_bits = 24;
  out.retry_ns = 100 * kMs;
  out.attempts = 3;
  out.idle_reachable_ns = 30'000 * kMs;
  return out;
}

inline std::vector<std::byte> bytes(std::initializer_list<int> values, std::size_t padded = 60) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  out.resize(std::max(out.size(), padded));
  return out;
}

// RFC 826, as it was seen on a network: 10.0.0.1 asks who has 10.0.0.2.
inline const auto kRequestFrame =
    bytes({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0,  0, 0, 0, 1, 8, 6, 0, 1, 8, 0,  6, 4, 0,
           1,    2,    0,    0,    0,    0,    1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2});
// 10.0.0.2 answers with 02:00:00:00:00:02.
inline const auto kReplyFrame =
    bytes({2, 0, 0, 0, 0, 1, 2, 0,  0, 0, 0, 2, 8, 6, 0, 1, 8, 0,  6, 4, 0,
           2, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1});
// 10.0.0.2 asks who has 10.0.0.1.
inline const auto kTheirRequest =
    bytes({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0,  0, 0, 0, 2, 8, 6, 0, 1, 8, 0,  6, 4, 0,
           1,    2,    0,    0,    0,    0,    2, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1});

inline std::vector<std::byte> taken(Neighbors& neighbors) {
  NeighborFrame frame;
  if (!neighbors.take_frame(frame)) return {};
  return {frame.view().begin(), frame.view().end()};
}

}  // namespace gradwire::port::test
