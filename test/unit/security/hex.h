// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Bytes as hexadecimal, as standards and vectors give them. For tests.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/require.h"
#include "security/secret.h"

namespace gradwire::security {

using Bytes = std::vector<std::byte>;

inline Bytes from_hex(std::string_view text) {
  const auto digit = [](char c) {
    const std::string_view digits = "0123456789abcdef";
    const std::size_t value = digits.find(c);
    require(value != std::string_view::npos, "a test's hexadecimal is lower case");
    return static_cast<unsigned>(value);
  };
  require(text.size() % 2 == 0, "a test's hexadecimal has two digits a byte");
  Bytes bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
  }
  return bytes;
}

inline std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

template <std::size_t N>
std::array<std::byte, N> array_of(std::span<const std::byte> bytes) {
  require(bytes.size() == N, "a test's value has the length that it must have");
  std::array<std::byte, N> out;
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return out;
}

template <std::size_t N>
SecretBytes<N> secret_of(std::string_view hex) {
  return SecretBytes<N>(std::span<const std::byte, N>(array_of<N>(from_hex(hex))));
}

}  // namespace gradwire::security
