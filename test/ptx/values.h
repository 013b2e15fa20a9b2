// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How opcodes read and write registers, and the tables that they are found in.
/// Private to the opcodes' sources.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "machine.h"
#include "module.h"

namespace gradwire::ptx {

using U8 = std::uint8_t;
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S8 = std::int8_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;
using F32 = float;
using F64 = double;

template <class T>
T from_bits(U64 bits) noexcept {
  if constexpr (std::is_same_v<T, F32>) {
    return std::bit_cast<F32>(static_cast<U32>(bits));
  } else if constexpr (std::is_same_v<T, F64>) {
    return std::bit_cast<F64>(bits);
  } else {
    return static_cast<T>(bits);
  }
}
/// Narrow values are extended to the slot by their sign.
template <class T>
U64 to_bits(T value) noexcept {
  if constexpr (std::is_same_v<T, F32>) {
    return std::bit_cast<U32>(value);
  } else if constexpr (std::is_same_v<T, F64>) {
    return std::bit_cast<U64>(value);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<U64>(static_cast<S64>(value));
  } else {
    return value;
  }
}
template <class T>
T get(const Thread& t, const Instruction& i, int which) noexcept {
  return from_bits<T>(t.raw(i.operand[which]));
}
template <class T>
void set(Thread& t, const Instruction& i, int which, T value) noexcept {
  t.slots[i.operand[which]] = to_bits(value);
}

template <class T>
T seal(T value) noexcept {
  if constexpr (std::is_same_v<T, F32>) {
    return std::isnan(value) ? std::bit_cast<F32>(0x7fffffffu) : value;
  } else if constexpr (std::is_same_v<T, F64>) {
    return std::isnan(value) ? std::bit_cast<F64>(0xfff8000000001234u) : value;
  } else {
    return value;
  }
}

using Table = std::unordered_map<std::string, Opcode>;

/// Adds what reaches memory, other threads and other instructions.
void add_memory_opcodes(Table& table);

}  // namespace gradwire::ptx
