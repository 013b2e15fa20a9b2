// SPDX-License-Identifier: BSD-3-Clause
#include <isa-l/crc.h>

#include <algorithm>
#include <cstdint>

#include "wire/crc32c_wide.h"
#include "wire/packet.h"

namespace gradwire::wire {

// ISA-L's function neither inverts its start nor its result; RFC 3720 does both. Inverting the
// running value on the way in and out makes it extendable.
std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes) noexcept {
  std::uint32_t state = ~crc;
  if (bytes.size() >= kWideLeastBytes && has_crc32c_wide()) state = crc32c_wide(state, bytes);
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

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept { return crc32c_extend(0, bytes); }

}  // namespace gradwire::wire
