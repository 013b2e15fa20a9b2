// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// SHA-256, HMAC and HKDF (RFC 5869) as doc/security.md uses them. Any thread; OpenSSL allocates,
/// and a failure of it (no memory) ends the process.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "security/secret.h"

namespace gradwire::security {

using Sha256 = std::array<std::byte, 32>;

[[nodiscard]] Sha256 sha256(std::span<const std::byte> bytes);
/// HMAC-SHA-256.
[[nodiscard]] Secret32 hmac(std::span<const std::byte> key, std::span<const std::byte> bytes);

/// HKDF-Extract.
[[nodiscard]] Secret32 extract(std::span<const std::byte> salt, std::span<const std::byte> secret);
[[nodiscard]] Secret32 extract(std::string_view salt, std::span<const std::byte> secret);

/// HKDF-Expand with any info.
/// @param out  255 * 32 bytes at most.
void expand_info(std::span<const std::byte> secret, std::span<const std::byte> info,
                 std::span<std::byte> out);
/// HKDF-Expand with info = label ++ 0x00 ++ context.
void expand(std::span<const std::byte> secret, std::string_view label,
            std::span<const std::byte> context, std::span<std::byte> out);

template <std::size_t N>
[[nodiscard]] SecretBytes<N> expand(std::span<const std::byte> secret, std::string_view label,
                                    std::span<const std::byte> context = {}) {
  SecretBytes<N> out;
  expand(secret, label, context, out.span());
  return out;
}

}  // namespace gradwire::security
