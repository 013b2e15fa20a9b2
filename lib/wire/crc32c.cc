// SPDX-License-Identifier: BSD-3-Clause
#include <isa-l/crc.h>
#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "wire/crc32c_wide.h"
#include "wire/layout.h"
#include "wire/packet.h"

namespace gradwire::wire {

// ISA-L's function neither inverts its start nor its result; RFC 3720 does both. Inverting the
// running value on the way in and out makes it extendable.
std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes,
                            const std::byte* ahead) noexcept {
  std::uint32_t state = ~crc;
  if (bytes.size() >= kWideLeastBytes) {
    const WideCrc width = wide_crc();
    if (width != WideCrc::kNone) state = crc32c_wide(width, state, bytes, ahead);
  }
  // ISA-L takes an int and no const.
  constexpr std::size_t kMaxCallBytes = std::size_t{1} << 30;
  auto* data = const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  std::size_t left = bytes.size();
  while (left > 0) {
    const std::size_t now = std::min(left, kMaxCallBytes);
    state = crc32_iscsi(data, static_cast<int>(now), state);
    data += now;
    left -= now;
  }
  return ~state;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, const std::byte* ahead) noexcept {
  return crc32c_extend(0, bytes, ahead);
}

// For so few bytes the instruction is several times as fast as two calls of ISA-L.
std::uint32_t layout::header_crc(const std::byte* header) noexcept {
  constexpr std::size_t kField = offsetof(Header, header_crc);
  constexpr std::size_t kAfter = offsetof(Header, payload_crc);
#ifdef __SSE4_2__
  static_assert(kField % 8 == 0 && kAfter + 4 + 8 == kHeaderBytes);
  const auto load = [header]<class T>(std::size_t offset, T value) {
    std::memcpy(&value, header + offset, sizeof(T));
    return value;
  };
  std::uint64_t state = 0xffffffff;
  for (std::size_t i = 0; i < kField; i += 8) state = _mm_crc32_u64(state, load(i, state));
  state = _mm_crc32_u32(static_cast<std::uint32_t>(state), load(kAfter, std::uint32_t{}));
  return ~static_cast<std::uint32_t>(_mm_crc32_u64(state, load(kAfter + 4, state)));
#else
  const std::uint32_t front = crc32c({header, kField});
  return crc32c_extend(front, {header + kAfter, kHeaderBytes - kAfter});
#endif
}

}  // namespace gradwire::wire
