// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// CRC32C by two units of the core at once: the crc32 instruction, of which one starts each cycle
/// (8 bytes), and carry-less multiplication of 256 bits (VPCLMULQDQ), which folds about as much
/// beside it. ISA-L 2.30 has the first alone, or the second alone with AVX-512. Private to
/// lib/wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire::wire {

/// Whether this CPU has the instructions; else crc32c_wide() must not be called.
[[nodiscard]] bool has_crc32c_wide() noexcept;
/// Below this many bytes it does nothing that ISA-L does not do as well.
inline constexpr std::size_t kWideLeastBytes = 512;
/// Takes whole steps off the front of `bytes`.
/// @param state  the running value, not inverted (ISA-L's crc32_iscsi takes and gives the same).
/// @param ahead  as crc32c()'s.
/// @return the running value behind what was taken.
[[nodiscard]] std::uint32_t crc32c_wide(std::uint32_t state, std::span<const std::byte>& bytes,
                                        const std::byte* ahead) noexcept;

}  // namespace gradwire::wire
