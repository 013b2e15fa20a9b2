// SPDX-License-Identifier: BSD-3-Clause
#include "base/require.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace gradwire {
namespace {

void to_standard_error(const char* text) { std::fputs(text, stderr); }

std::atomic<LastWords> last_words{to_standard_error};

}  // namespace

void set_last_words(LastWords say) noexcept { last_words = say; }

void violated(const char* what, const char* file, unsigned line, const char* function) noexcept {
  std::array<char, 2048> text;
  std::snprintf(text.data(), text.size(), "gradwire: this must hold and does not: %s (%s:%u, %s)\n",
                what, file, line, function);
  last_words.load()(text.data());
  std::abort();
}

}  // namespace gradwire
