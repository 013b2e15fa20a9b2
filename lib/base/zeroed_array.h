// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// An array of plain values whose bytes are 0 at first. If it is large, the kernel gives it a page
/// when that is used first, so what is never used takes no memory, and whoever makes the array does
/// not touch all of it. Whoever owns it makes and destroys it; both allocate.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace gradwire {

template <class T>
class ZeroedArray {
  // Such objects begin their lives with the memory, by the rules of mmap() in C++20.
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  ZeroedArray() = default;
  /// Throws std::bad_alloc.
  explicit ZeroedArray(std::size_t size) : size_(size) {
    if (size == 0) return;
    void* const made = is_mapped() ? ::mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                   : std::calloc(size, sizeof(T));
    if (made == nullptr || made == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(made);
  }
  ~ZeroedArray() {
    if (data_ == nullptr) return;
    if (is_mapped()) {
      ::munmap(data_, size_ * sizeof(T));
    } else {
      std::free(data_);
    }
  }
  ZeroedArray(ZeroedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  ZeroedArray& operator=(ZeroedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T* data() const noexcept { return data_; }
  [[nodiscard]] T& operator[](std::size_t index) noexcept { return data_[index]; }
  [[nodiscard]] const T& operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  /// A small one would waste most of a page, and the process has only so many maps. ASan sees what
  /// is past the end of what came from the heap alone.
  [[nodiscard]] bool is_mapped() const noexcept {
#ifdef __SANITIZE_ADDRESS__
    return false;
#else
    return size_ * sizeof(T) >= std::size_t{64} << 10;
#endif
  }

  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace gradwire
