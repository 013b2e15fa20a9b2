// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What packet_key.cc knows of the ciphers, and what these share. Private to lib/security.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "security/packet_key.h"

namespace gradwire::security {

[[nodiscard]] std::unique_ptr<PacketKey::State> make_openssl_state(const SecretBytes<16>& key);
/// @return null if ipsec-mb cannot be had: not in this build, or no AES in this CPU.
[[nodiscard]] std::unique_ptr<PacketKey::State> make_ipsec_mb_state(const SecretBytes<16>& key);
/// Of such a one; 0 if this build has none.
[[nodiscard]] std::size_t ipsec_mb_state_bytes();
/// "ipsec-mb 1.3.0 (AVX2)"; empty if it cannot be had.
[[nodiscard]] std::string ipsec_mb_text();

/// The part of the header that is additional data in both modes: all but both CRCs.
inline constexpr std::size_t kHeaderDataBytes = 56;
[[nodiscard]] inline std::array<std::byte, kHeaderDataBytes> header_data(
    std::span<const std::byte, kSealedHeaderBytes> header) noexcept {
  std::array<std::byte, kHeaderDataBytes> data;
  std::memcpy(data.data(), header.data(), 48);
  std::memcpy(data.data() + 48, header.data() + 56, 8);
  return data;
}

/// What is sealed without being encrypted is copied, unless it lies there already.
inline void copy_piece(std::byte* to, std::span<const std::byte> from) noexcept {
  if (to != from.data() && !from.empty()) std::memcpy(to, from.data(), from.size());
}

}  // namespace gradwire::security
