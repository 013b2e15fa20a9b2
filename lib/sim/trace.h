// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a run did: always a hash of everything that matters, and the same as lines of text if they
/// are wanted. Equal seeds have equal hashes. One thread.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "base/types.h"

namespace gradwire::sim {

class Trace {
 public:
  /// `out` gets the lines; nullptr = only the hash.
  explicit Trace(std::FILE* out = nullptr) noexcept : out_(out) {}

  /// Words that the hash takes up. Time comes first wherever something happens.
  template <class... Words>
  void mix(Words... words) noexcept {
    (mix_one(static_cast<std::uint64_t>(words)), ...);
  }
  [[nodiscard]] bool prints() const noexcept { return out_ != nullptr; }
  /// One line; what it says is in the hash by mix(). Formats nothing unless prints().
  template <class... Args>
  void line(TimeNs now, fmt::format_string<Args...> format, Args&&... args) {
    if (out_ == nullptr) return;
    fmt::print(out_, "{:>14.3f} us  ", static_cast<double>(now) / 1000);
    fmt::print(out_, format, std::forward<Args>(args)...);
    std::fputc('\n', out_);
  }
  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_ ^ hash_ >> 29; }

 private:
  void mix_one(std::uint64_t word) noexcept {
    hash_ = (hash_ ^ word) * 0x9e3779b97f4a7c15;
    hash_ ^= hash_ >> 32;
  }

  std::FILE* out_;
  std::uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace gradwire::sim
