// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Bytes that nobody else may see: cleared when they are done with, compared in constant time, and,
/// if they live long, in memory that core dumps and children do not get. Any thread; what lies in
/// secret memory is allocated under a lock, so not on a lane.
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <span>

#include "base/result.h"

namespace gradwire::security {

/// Writes zeros that no compiler leaves out.
void clear(std::span<std::byte> bytes) noexcept;

/// Whether both are alike. Takes as long whatever they hold. Different lengths are no secret.
[[nodiscard]] bool equal_in_constant_time(std::span<const std::byte> a,
                                          std::span<const std::byte> b) noexcept;

/// Bytes from the kernel's generator.
[[nodiscard]] Result<void> draw(std::span<std::byte> out);

/// N bytes that clear themselves. On a stack, or as a member of what lies in secret memory: what
/// lives longer than a call belongs into an object that is made by new, derived from
/// InSecretMemory.
template <std::size_t N>
class SecretBytes {
 public:
  SecretBytes() noexcept = default;
  explicit SecretBytes(std::span<const std::byte, N> from) noexcept {
    for (std::size_t i = 0; i < N; ++i) bytes_[i] = from[i];
  }
  SecretBytes(const SecretBytes&) noexcept = default;
  SecretBytes& operator=(const SecretBytes&) noexcept = default;
  ~SecretBytes() { clear(bytes_); }

  [[nodiscard]] std::span<std::byte, N> span() noexcept { return bytes_; }
  [[nodiscard]] std::span<const std::byte, N> span() const noexcept { return bytes_; }

 private:
  std::array<std::byte, N> bytes_{};
};
using Secret32 = SecretBytes<32>;

/// Memory of MADV_DONTDUMP and MADV_WIPEONFORK, at a multiple of 64.
/// @return null if the kernel gives none.
[[nodiscard]] void* allocate_secret(std::size_t bytes) noexcept;
/// Clears it.
/// @param bytes as allocated; `memory` may be null.
void free_secret(void* memory, std::size_t bytes) noexcept;
/// What is allocated now, by all.
[[nodiscard]] std::size_t secret_bytes() noexcept;

/// Base of a class whose objects lie in secret memory if they are made by new.
class InSecretMemory {
 public:
  static void* operator new(std::size_t bytes) {
    void* memory = allocate_secret(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }
  static void* operator new(std::size_t bytes, std::align_val_t align) {
    // What is asked of a class that is aligned to more than 64 could not be kept.
    if (static_cast<std::size_t>(align) > 64) throw std::bad_alloc();
    return operator new(bytes);
  }
  static void operator delete(void* memory, std::size_t bytes) noexcept {
    free_secret(memory, bytes);
  }
  static void operator delete(void* memory, std::size_t bytes, std::align_val_t) noexcept {
    free_secret(memory, bytes);
  }
};

}  // namespace gradwire::security
