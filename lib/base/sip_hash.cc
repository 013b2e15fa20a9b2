// SPDX-License-Identifier: BSD-3-Clause
#include "base/sip_hash.h"

#include <bit>

namespace gradwire {
namespace {

struct State {
  std::uint64_t v0, v1, v2, v3;

  void round() noexcept {
    v0 += v1;
    v2 += v3;
    v1 = std::rotl(v1, 13) ^ v0;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 = std::rotl(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = std::rotl(v1, 17) ^ v2;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 = std::rotl(v2, 32);
  }

  void absorb(std::uint64_t word) noexcept {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
};

/// Up to eight bytes, the first one lowest.
std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    word |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return word;
}

}  // namespace

std::uint64_t sip_hash(const SipHashKey& key, std::span<const std::byte> bytes) noexcept {
  // The initial words spell "somepseudorandomlygeneratedbytes".
  State state = {key.k0 ^ 0x736f6d6570736575, key.k1 ^ 0x646f72616e646f6d,
                 key.k0 ^ 0x6c7967656e657261, key.k1 ^ 0x7465646279746573};
  const std::uint64_t length_byte = static_cast<std::uint64_t>(bytes.size() & 0xff) << 56;
  while (bytes.size() >= 8) {
    state.absorb(little_endian(bytes.first(8)));
    bytes = bytes.subspan(8);
  }
  state.absorb(little_endian(bytes) | length_byte);
  state.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

}  // namespace gradwire
