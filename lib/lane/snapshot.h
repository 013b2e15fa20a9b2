// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A value that one thread writes now and then and others read whole, without a lock: a sequence
/// number is odd while the value changes (H.-J. Boehm, "Can seqlocks get along with programming
/// language memory models?", 2012). The writer never waits; a reader repeats.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace gradwire::lane {

template <class T>
class Snapshot {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  void write(const T& value) noexcept {
    std::array<std::uint64_t, kWords> words{};
    std::memcpy(words.data(), &value, sizeof value);
    const std::uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
    version_.store(version + 2, std::memory_order_release);
  }

  [[nodiscard]] T read() const noexcept {
    std::array<std::uint64_t, kWords> words;
    while (true) {
      const std::uint32_t before = version_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) break;
    }
    T value;
    std::memcpy(static_cast<void*>(&value), words.data(), sizeof value);
    return value;
  }

 private:
  static constexpr std::size_t kWords = (sizeof(T) + 7) / 8;
  std::atomic<std::uint32_t> version_{0};
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

}  // namespace gradwire::lane
