// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): 64 bits of hash
/// over any bytes, the same on every machine. Any thread; allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire {

struct SipHashKey {
  std::uint64_t k0 = 0;
  std::uint64_t k1 = 0;
};

[[nodiscard]] std::uint64_t sip_hash(const SipHashKey& key,
                                     std::span<const std::byte> bytes) noexcept;

}  // namespace gradwire
