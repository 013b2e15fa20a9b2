// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/pattern.h"

#include <algorithm>
#include <cstring>

namespace gradwire::nccl {
namespace {

constexpr char kPoison = static_cast<char>(0xa5);
constexpr std::size_t kWord = sizeof(std::uint64_t);

/// The words of a pattern. Cheap, since whole buffers are filled and compared: no two words of a
/// message are alike, nor those of two messages.
std::uint64_t word(std::uint64_t key, std::size_t index) {
  return key + (index + 1) * 0x9e3779b97f4a7c15u;
}

std::size_t first_other_in(const char* a, const char* b, std::size_t bytes) {
  return static_cast<std::size_t>(std::mismatch(a, a + bytes, b).first - a);
}

}  // namespace

void fill_pattern(std::uint64_t key, char* data, std::size_t bytes) {
  const std::size_t words = bytes / kWord;
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t value = word(key, i);
    std::memcpy(data + i * kWord, &value, kWord);
  }
  const std::uint64_t last = word(key, words);
  if (bytes % kWord != 0) std::memcpy(data + words * kWord, &last, bytes % kWord);
}

std::size_t first_other_than_pattern(std::uint64_t key, const char* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kWord) {
    const std::uint64_t wanted = word(key, at / kWord);
    const std::size_t here = std::min(kWord, bytes - at);
    if (std::memcmp(data + at, &wanted, here) == 0) continue;
    return at + first_other_in(data + at, reinterpret_cast<const char*>(&wanted), here);
  }
  return bytes;
}

void fill_poison(char* data, std::size_t bytes) {
  if (bytes > 0) std::memset(data, kPoison, bytes);
}

std::size_t first_other_than_poison(const char* data, std::size_t bytes) {
  // All are alike if the first is poison and each is its neighbor's equal.
  if (bytes == 0 || (data[0] == kPoison && std::memcmp(data, data + 1, bytes - 1) == 0)) {
    return bytes;
  }
  return static_cast<std::size_t>(
      std::find_if(data, data + bytes, [](char c) { return c != kPoison; }) - data);
}

}  // namespace gradwire::nccl
