// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "wire/frame.h"

namespace gradwire::wire {
namespace {

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<IpAddress> parse_ip(std::string_view text) noexcept {
  std::array<char, INET6_ADDRSTRLEN> terminated{};
  if (text.size() >= terminated.size()) return std::nullopt;
  // inet_pton stops at a NUL and would accept the part before it.
  if (text.find('\0') != std::string_view::npos) return std::nullopt;
  std::copy(text.begin(), text.end(), terminated.begin());
  IpAddress address;
  if (inet_pton(AF_INET, terminated.data(), address.bytes.data()) == 1) {
    address.family = 4;
    return address;
  }
  if (inet_pton(AF_INET6, terminated.data(), address.bytes.data()) == 1) {
    address.family = 6;
    return address;
  }
  return std::nullopt;
}

std::string to_string(const IpAddress& address) {
  if (address.family != 4 && address.family != 6) return "none";
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(address.family == 4 ? AF_INET : AF_INET6, address.bytes.data(), text.data(),
            text.size());
  return text.data();
}

std::optional<MacAddress> parse_mac(std::string_view text) noexcept {
  constexpr std::size_t kTextBytes = 17;  // six pairs, five colons
  if (text.size() != kTextBytes) return std::nullopt;
  MacAddress mac{};
  for (std::size_t i = 0; i < mac.size(); ++i) {
    const int high = hex_digit(text[3 * i]);
    const int low = hex_digit(text[3 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    if (i + 1 < mac.size() && text[3 * i + 2] != ':') return std::nullopt;
    mac[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return mac;
}

std::string to_string(const MacAddress& address) {
  return fmt::format("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", address[0], address[1],
                     address[2], address[3], address[4], address[5]);
}

bool is_link_local(const IpAddress& address) noexcept {
  return address.family == 6 && address.bytes[0] == 0xfe && (address.bytes[1] & 0xc0) == 0x80;
}

bool same_network(const IpAddress& a, const IpAddress& b, int prefix_bits) noexcept {
  if (a.family != b.family || (a.family != 4 && a.family != 6)) return false;
  const int address_bits = a.family == 4 ? 32 : 128;
  if (prefix_bits < 0 || prefix_bits > address_bits) return false;
  const auto whole = static_cast<std::size_t>(prefix_bits / 8);
  if (std::memcmp(a.bytes.data(), b.bytes.data(), whole) != 0) return false;
  const int rest = prefix_bits % 8;
  if (rest == 0) return true;
  const int mask = 0xff << (8 - rest) & 0xff;
  return (a.bytes[whole] & mask) == (b.bytes[whole] & mask);
}

}  // namespace gradwire::wire
