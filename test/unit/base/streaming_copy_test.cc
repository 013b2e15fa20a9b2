// SPDX-License-Identifier: BSD-3-Clause
#include "base/streaming_copy.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

TEST_CASE("a streaming copy copies all bytes and no more, wherever they lie") {
  constexpr std::size_t kMost = 4 * 64 + 9;
  std::vector<std::uint8_t> from(kMost + 64);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 7 + 1);
  std::vector<std::uint8_t> to(kMost + 2 * 64);
  for (std::size_t out = 0; out < 64; out += 3) {
    for (std::size_t in = 0; in < 17; ++in) {
      for (std::size_t bytes = 0; bytes <= kMost; bytes += bytes < 140 ? 1 : 31) {
        std::vector<std::uint8_t> expected(to.size(), 0xee);
        std::copy_n(from.begin() + static_cast<long>(in), bytes,
                    expected.begin() + static_cast<long>(out));
        std::fill(to.begin(), to.end(), std::uint8_t{0xee});
        gradwire::streaming_copy(to.data() + out, from.data() + in, bytes);
        if (to != expected) {
          FAIL_CHECK("to " << out << " from " << in << ", " << bytes << " bytes");
        }
      }
    }
  }
}
