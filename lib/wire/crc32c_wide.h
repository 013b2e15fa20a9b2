// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// CRC32C by two units of the core at once: the crc32 instruction, of which one starts each cycle
/// (8 bytes), and carry-less multiplication of 256 or 512 bits (VPCLMULQDQ), which folds as much
/// beside it, or twice that. ISA-L 2.30 has the first alone, or the second alone with AVX-512.
/// Private to lib/wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::wire {

/// Bits that one instruction of this CPU multiplies.
enum class WideCrc : std::uint8_t { kNone, k256, k512 };
[[nodiscard]] WideCrc wide_crc() noexcept;
/// Below this many bytes it does nothing: ISA-L is as fast.
inline constexpr std::size_t kWideLeastBytes = 512;
/// Takes whole steps off the front of `bytes`, as long as there is one.
/// @param width  wide_crc(), or less; not kNone.
/// @param state  the running value, not inverted (ISA-L's crc32_iscsi takes and gives the same).
/// @param ahead  as crc32c()'s.
/// @return the running value after what was taken.
[[nodiscard]] std::uint32_t crc32c_wide(WideCrc width, std::uint32_t state,
                                        std::span<const std::byte>& bytes,
                                        const std::byte* ahead) noexcept;

}  // namespace gradwire::wire
