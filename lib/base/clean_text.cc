// SPDX-License-Identifier: BSD-3-Clause
#include "base/clean_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gradwire {
namespace {

/// @return the length of the UTF-8 sequence at the front of `text`, 0 if none is there (RFC 3629:
/// no overlong forms, no surrogates, nothing above U+10FFFF).
std::size_t utf8_length(std::span<const char> text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const auto follows = [&](std::size_t i, std::uint8_t low, std::uint8_t high) {
    return i < text.size() && at(i) >= low && at(i) <= high;
  };
  const std::uint8_t lead = at(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return follows(1, 0x80, 0xbf) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const std::uint8_t low = lead == 0xe0 ? 0xa0 : 0x80;
    const std::uint8_t high = lead == 0xed ? 0x9f : 0xbf;
    return follows(1, low, high) && follows(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const std::uint8_t low = lead == 0xf0 ? 0x90 : 0x80;
    const std::uint8_t high = lead == 0xf4 ? 0x8f : 0xbf;
    return follows(1, low, high) && follows(2, 0x80, 0xbf) && follows(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

}  // namespace

void clean_text(std::span<char> text) noexcept {
  std::size_t i = 0;
  while (i < text.size() && text[i] != '\0') {
    const std::size_t length = utf8_length(text.subspan(i));
    const bool control =
        length == 1 && (static_cast<unsigned char>(text[i]) < 0x20 || text[i] == 0x7f);
    // U+0080 to U+009F: a terminal may take U+009B for the beginning of a command.
    const bool further =
        length == 2 && text[i] == '\xc2' && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (length == 0 || control || further) text[i] = '?';
    if (further) text[i + 1] = '?';
    i += std::max<std::size_t>(length, 1);
  }
  std::fill(text.begin() + static_cast<std::ptrdiff_t>(i), text.end(), '\0');
}

}  // namespace gradwire
