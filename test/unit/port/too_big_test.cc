// SPDX-License-Identifier: BSD-3-Clause
#include "port/too_big.h"

#include <catch2/catch.hpp>
#include <vector>

using namespace gradwire;
using namespace gradwire::port;

namespace {

const auto kOwn = *wire::parse_ip("10.0.0.1");

void append(std::vector<std::byte>& to, std::initializer_list<int> values) {
  for (const int value : values) to.push_back(static_cast<std::byte>(value));
}

/// The router 10.0.0.254 tells 10.0.0.1 that its packet of 1500 bytes to 10.9.0.2 is too large for
/// a link of 1400.
std::vector<std::byte> message(bool tagged = false) {
  std::vector<std::byte> frame;
  append(frame, {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0xfe});
  if (tagged) append(frame, {0x81, 0, 0, 7});
  append(frame, {8, 0});
  append(frame, {0x45, 0, 0, 56, 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 254, 10, 0, 0, 1});
  append(frame, {3, 4, 0, 0, 0, 0, 1400 >> 8, 1400 & 255});
  append(frame,
         {0x45, 0, 1500 >> 8, 1500 & 255, 0, 0, 0x40, 0, 63, 17, 0, 0, 10, 0, 0, 1, 10, 9, 0, 2});
  append(frame, {0x48, 0x53, 0x48, 0x53, 5, 0xc8, 0, 0});
  return frame;
}

}  // namespace

TEST_CASE("a router's word of a packet too large is read, tagged or not, cut off or whole") {
  const TooBig expected{*wire::parse_ip("10.0.0.254"), *wire::parse_ip("10.9.0.2"), 1500, 1400};
  CHECK(read_too_big(message(), kOwn) == expected);
  CHECK(read_too_big(message(true), kOwn) == expected);
  const auto frame = message();
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const std::vector<std::byte> cut(frame.begin(),
                                     frame.begin() + static_cast<std::ptrdiff_t>(size));
    // Of the quoted packet its IP header is enough.
    CHECK(read_too_big(cut, kOwn).has_value() == (size >= 14 + 20 + 8 + 20));
  }
}

TEST_CASE("what is not about a datagram of ours is not taken for it") {
  const auto with = [](std::size_t at, int value) {
    auto frame = message();
    frame[at] = static_cast<std::byte>(value);
    return read_too_big(frame, kOwn).has_value();
  };
  CHECK(with(0, 2));
  CHECK_FALSE(with(13, 6));       // ARP
  CHECK_FALSE(with(14, 0x65));    // IPv6
  CHECK_FALSE(with(14, 0x44));    // a header of 16 bytes
  CHECK_FALSE(with(14, 0x4f));    // options that take all of it
  CHECK_FALSE(with(23, 17));      // UDP
  CHECK_FALSE(with(33, 2));       // to 10.0.0.2
  CHECK_FALSE(with(34, 8));       // an echo request
  CHECK_FALSE(with(35, 1));       // the host is unreachable
  CHECK_FALSE(with(42 + 9, 6));   // about TCP
  CHECK_FALSE(with(42 + 15, 2));  // about a packet of 10.0.0.2
}

TEST_CASE("the table keeps the last word about each destination, and no more than a few") {
  TooBigTable table;
  TooBig word = *read_too_big(message(), kOwn);
  CHECK(table.add(word));
  CHECK_FALSE(table.add(word));
  word.mtu = 1300;
  CHECK(table.add(word));
  CHECK(table.find(word.destination)->mtu == 1300);
  for (unsigned i = 0; i < 1'000; ++i) {
    word.destination.bytes[1] = static_cast<std::uint8_t>(i >> 8);
    word.destination.bytes[3] = static_cast<std::uint8_t>(i & 255);
    CHECK(table.add(word));
    CHECK(table.find(word.destination));
  }
  CHECK_FALSE(table.find(*wire::parse_ip("10.9.0.2")));
}

TEST_CASE("a router's word over IPv6 is read, whole or with its end missing") {
  std::vector<std::byte> frame;
  const auto ip = [&](int last, int to, int protocol, int bytes) {
    append(frame, {0x60, 0, 0, 0, bytes >> 8, bytes & 255, protocol, 64});
    for (const int host : {last, to}) {
      append(frame, {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host});
    }
  };
  append(frame, {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0xfe, 0x86, 0xdd});
  ip(0xfe, 1, 58, 8 + 48);
  append(frame, {2, 0, 0, 0, 0, 0, 1400 >> 8, 1400 & 255});
  ip(1, 2, 17, 1460);
  append(frame, {0x48, 0x53, 0x48, 0x53, 5, 0xb4, 0, 0});
  const auto own = *wire::parse_ip("fd00::1");
  const TooBig expected{*wire::parse_ip("fd00::fe"), *wire::parse_ip("fd00::2"), 1500, 1400};
  CHECK(read_too_big(frame, own) == expected);
  CHECK_FALSE(read_too_big(frame, kOwn));
  CHECK_FALSE(read_too_big(frame, *wire::parse_ip("fd00::3")));
  CHECK_FALSE(read_too_big(message(), own));
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const std::vector<std::byte> cut(frame.begin(),
                                     frame.begin() + static_cast<std::ptrdiff_t>(size));
    CHECK(read_too_big(cut, own).has_value() == (size >= 14 + 40 + 8 + 40));
  }
  for (const std::size_t at : {20u, 54u, 55u, 68u, 85u}) {
    auto other = frame;
    other[at] ^= std::byte{8};
    INFO(at);
    CHECK_FALSE(read_too_big(other, own));
  }
}
