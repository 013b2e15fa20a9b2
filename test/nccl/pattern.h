// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Bytes that tell where they belong: those of a message follow from its key, and what no message
/// has written holds poison. Pure functions; nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::nccl {

void fill_pattern(std::uint64_t key, char* data, std::size_t bytes);

/// @return the first byte that is not the pattern's; `bytes` if all are.
std::size_t first_other_than_pattern(std::uint64_t key, const char* data, std::size_t bytes);

void fill_poison(char* data, std::size_t bytes);
/// @return the first byte that is not poison; `bytes` if all are.
std::size_t first_other_than_poison(const char* data, std::size_t bytes);

}  // namespace gradwire::nccl
