// SPDX-License-Identifier: BSD-3-Clause
#include <isa-l/crc.h>

#include <cstddef>
#include <cstdint>

#include "wire/crc32c_wide.h"
#include "wire/packet.h"

namespace gradwire::wire {

namespace {

/// Asked once, before main(): each question would look whether it was asked before.
const WideCrc kWidth = wide_crc();

/// ISA-L takes an int and no const.
std::uint32_t take(std::uint32_t state, std::span<const std::byte> bytes) noexcept {
  auto* const data =
      const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(bytes.data()));
  return crc32_iscsi(data, static_cast<int>(bytes.size()), state);
}

}  // namespace

// ISA-L's function neither inverts its start nor its result; RFC 3720 does both. Inverting the
// running value on the way in and out makes it extendable.
std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes,
                            const std::byte* ahead) noexcept {
  std::uint32_t state = ~crc;
  if (kWidth != WideCrc::kNone && bytes.size() >= kWideLeastBytes) {
    state = crc32c_wide(kWidth, state, bytes, ahead);
  }
  constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;
  while (bytes.size() > kMostAtOnce) {
    state = take(state, bytes.first(kMostAtOnce));
    bytes = bytes.subspan(kMostAtOnce);
  }
  return ~(bytes.empty() ? state : take(state, bytes));
}

}  // namespace gradwire::wire
