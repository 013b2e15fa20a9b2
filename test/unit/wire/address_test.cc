// SPDX-License-Identifier: BSD-3-Clause
#include <catch2/catch.hpp>
#include <string>

#include "wire/frame.h"

using namespace gradwire::wire;

TEST_CASE("IP addresses parse and print") {
  for (const char* text : {"10.0.0.1", "255.255.255.255", "0.0.0.0", "fd00::1", "2001:db8::ff"}) {
    const auto address = parse_ip(text);
    REQUIRE(address.has_value());
    CHECK(to_string(*address) == text);
  }
  CHECK(parse_ip("192.0.2.7")->family == 4);
  CHECK(parse_ip("192.0.2.7")->bytes[3] == 7);
  CHECK(parse_ip("::1")->family == 6);
  CHECK(to_string(IpAddress{}) == "none");
}

TEST_CASE("what is no IP address is refused") {
  for (const char* text :
       {"", "10.0.0", "10.0.0.256", "10.0.0.1 ", "host", "1::2::3", "10.0.0.1/8"})
    CHECK_FALSE(parse_ip(text).has_value());
  CHECK_FALSE(parse_ip(std::string_view("10.0.0.1\0x", 10)).has_value());
  CHECK_FALSE(parse_ip(std::string(1000, '1')).has_value());
}

TEST_CASE("MAC addresses parse and print") {
  const auto mac = parse_mac("02:aB:00:fF:10:01");
  REQUIRE(mac.has_value());
  CHECK(*mac == MacAddress{0x02, 0xab, 0x00, 0xff, 0x10, 0x01});
  CHECK(to_string(*mac) == "02:ab:00:ff:10:01");
  for (const char* text : {"", "02:ab:00:ff:10", "02:ab:00:ff:10:0g", "02-ab-00-ff-10-01",
                           "02:ab:00:ff:10:011", "2:ab:00:ff:10:01:"})
    CHECK_FALSE(parse_mac(text).has_value());
}

TEST_CASE("a network is the first bits of an address") {
  const auto same = [](const char* a, const char* b, int bits) {
    return same_network(*parse_ip(a), *parse_ip(b), bits);
  };
  CHECK(same("10.1.2.3", "10.1.2.200", 24));
  CHECK_FALSE(same("10.1.2.3", "10.1.3.3", 24));
  CHECK(same("10.1.2.3", "10.1.3.3", 23));
  CHECK_FALSE(same("10.1.3.3", "10.1.4.3", 22));
  CHECK(same("10.1.2.3", "10.1.2.3", 32));
  CHECK_FALSE(same("10.1.2.3", "10.1.2.2", 32));
  CHECK(same("10.1.2.3", "192.0.2.1", 0));
  CHECK(same("fd00::1", "fd00::ffff", 64));
  CHECK_FALSE(same("fd00::1", "fd00::2", 127));
  CHECK(same("fd00::2", "fd00::3", 127));
  CHECK_FALSE(same("10.1.2.3", "fd00::1", 0));
  CHECK_FALSE(same("10.1.2.3", "10.1.2.3", 33));
  CHECK_FALSE(same("10.1.2.3", "10.1.2.3", -1));
  CHECK_FALSE(same_network({}, {}, 0));
}
