// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What fuzz targets have in common: the bytes of an input read as numbers and choices, and a check
/// that ends the process in every build, and says where it failed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace gradwire::fuzz {

/// Ends the program: libFuzzer and replay_main.cc then keep the input.
#define FUZZ_CHECK(condition)                                                      \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                \
    }                                                                              \
  } while (false)

/// Reads an input from its front; after its end it reads zeros. Never read twice in the arguments
/// of one call: compilers evaluate them in different orders, and an input must always mean the
/// same.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  [[nodiscard]] bool empty() const noexcept { return rest_.empty(); }
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t wanted) noexcept {
    const auto taken = rest_.first(std::min(wanted, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  [[nodiscard]] std::span<const std::byte> rest() noexcept { return bytes(rest_.size()); }
  /// The next u8(), which stays.
  [[nodiscard]] std::uint8_t peek() const noexcept {
    return rest_.empty() ? std::uint8_t{0} : std::to_integer<std::uint8_t>(rest_.front());
  }
  [[nodiscard]] std::uint8_t u8() noexcept { return static_cast<std::uint8_t>(number(1)); }
  [[nodiscard]] std::uint16_t u16() noexcept { return static_cast<std::uint16_t>(number(2)); }
  [[nodiscard]] std::uint32_t u32() noexcept { return static_cast<std::uint32_t>(number(4)); }
  [[nodiscard]] std::uint64_t u64() noexcept { return number(8); }
  /// [0, choices)
  [[nodiscard]] std::uint32_t pick(std::uint32_t choices) noexcept { return u8() % choices; }
  /// Mostly small, sometimes any value: the first byte decides.
  [[nodiscard]] std::uint64_t small_or_any() noexcept {
    const std::uint8_t first = u8();
    if (first < 0xf8) return first;
    return first < 0xfc ? u16() : u64();
  }

 private:
  [[nodiscard]] std::uint64_t number(std::size_t wide) noexcept {
    std::uint64_t value = 0;
    std::size_t i = 0;
    for (const std::byte byte : bytes(wide))
      value |= std::to_integer<std::uint64_t>(byte) << 8 * i++;
    return value;
  }
  std::span<const std::byte> rest_;
};

/// Plays one input: a Run acts until the input ends, so often at most, and looks at the end whether
/// all is as it should be.
template <class Run>
void play(const std::uint8_t* data, std::size_t size, int actions_max) {
  Input input(std::as_bytes(std::span(data, size)));
  Run run(input);
  for (int actions = 0; actions < actions_max && !input.empty(); ++actions) run.act();
  run.finish();
}

}  // namespace gradwire::fuzz

/// libFuzzer's two entries, which replay_main.cc calls too.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
