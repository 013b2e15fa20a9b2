// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the codec's tests share: which codecs this CPU has, which formats of what, counts, and
/// arrays at any address between bytes that must not change.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "format_reference.h"
#include "reduce/formats/codec.h"

namespace gradwire::test {

/// One for each instruction set of this CPU, the scalar one first.
inline std::vector<reduce::FormatCodec> codecs() {
  std::vector<reduce::FormatCodec> found;
  for (const reduce::FormatIsa isa : reduce::kFormatIsas) {
    if (const auto codec = reduce::FormatCodec::of(isa)) found.push_back(*codec);
  }
  return found;
}

inline constexpr std::array kTravels = {std::pair{WireFormat::kBf16, DataType::kFloat32},
                                        std::pair{WireFormat::kInt8, DataType::kFloat32},
                                        std::pair{WireFormat::kInt8, DataType::kBfloat16}};

/// None, borders of vectors, blocks and chunks of 5 blocks, and between.
inline constexpr std::size_t kCounts[] = {
    0,   1,   2,   7,   8,   9,   15,  16,  17,   31,   32,   33,   63,   64,   65,   255,
    256, 257, 511, 512, 513, 704, 777, 991, 1023, 1024, 1279, 1280, 1281, 4448, 8704, 8705};

/// @return where `got` is not what it should be, or an empty string.
inline std::string difference(const Bytes& got, const Bytes& wanted) {
  if (got.size() != wanted.size()) return "another length";
  const auto [one, other] = std::mismatch(got.begin(), got.end(), wanted.begin());
  if (one == got.end()) return {};
  return "byte " + std::to_string(one - got.begin()) + " is " +
         std::to_string(std::to_integer<int>(*one)) + ", not " +
         std::to_string(std::to_integer<int>(*other));
}

/// An array so many bytes behind a border of 64, between bytes that must not change.
class Placed {
 public:
  Placed(std::size_t bytes, std::size_t misalignment)
      : bytes_(bytes), memory_(bytes + 3 * kFrame, kFill) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    first_ = kFrame + (kFrame - address % kFrame) % kFrame + misalignment;
  }
  Placed(const Bytes& content, std::size_t misalignment) : Placed(content.size(), misalignment) {
    std::copy(content.begin(), content.end(),
              memory_.begin() + static_cast<std::ptrdiff_t>(first_));
  }
  [[nodiscard]] reduce::BytesOut bytes() { return {memory_.data() + first_, bytes_}; }
  [[nodiscard]] reduce::BytesIn bytes() const { return {memory_.data() + first_, bytes_}; }
  [[nodiscard]] Bytes content() const {
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(first_);
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes_)};
  }
  [[nodiscard]] bool is_framed() const {
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(first_);
    const auto is_fill = [](std::byte byte) { return byte == kFill; };
    return std::all_of(memory_.begin(), begin, is_fill) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), is_fill);
  }

 private:
  static constexpr std::size_t kFrame = 64;
  static constexpr std::byte kFill{0x5a};
  std::size_t bytes_;
  Bytes memory_;
  std::size_t first_ = 0;
};

}  // namespace gradwire::test
