// SPDX-License-Identifier: BSD-3-Clause
#include "security/secret.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/mman.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <vector>

#include "base/require.h"

namespace gradwire::security {
namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kSlabBytes = std::size_t{1} << 16;

constexpr std::size_t rounded(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// Slabs are kept for good: what was freed is cleared, and handed out again.
class Arena {
 public:
  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t size = rounded(std::max<std::size_t>(bytes, 1), kAlign);
    std::vector<void*>& free = free_[size];
    if (!free.empty()) {
      void* memory = free.back();
      free.pop_back();
      in_use_ += size;
      return memory;
    }
    // So that giving it back allocates nothing.
    if (const std::size_t most = ++handed_out_[size]; free.capacity() < most) {
      free.reserve(2 * most);
    }
    if (size > left_.size()) {
      const std::span<std::byte> slab = map(std::max(kSlabBytes, rounded(size, kSlabBytes)));
      if (slab.empty()) return nullptr;
      left_ = slab;
    }
    void* memory = left_.data();
    left_ = left_.subspan(size);
    in_use_ += size;
    return memory;
  }
  void free(void* memory, std::size_t bytes) noexcept {
    const std::size_t size = rounded(std::max<std::size_t>(bytes, 1), kAlign);
    clear({static_cast<std::byte*>(memory), size});
    const std::lock_guard lock(mutex_);
    free_[size].push_back(memory);
    in_use_ -= size;
  }
  std::size_t in_use() {
    const std::lock_guard lock(mutex_);
    return in_use_;
  }

 private:
  static std::span<std::byte> map(std::size_t bytes) noexcept {
    void* slab = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (slab == MAP_FAILED) return {};
    if (madvise(slab, bytes, MADV_DONTDUMP) != 0 || madvise(slab, bytes, MADV_WIPEONFORK) != 0) {
      munmap(slab, bytes);
      return {};
    }
    return {static_cast<std::byte*>(slab), bytes};
  }

  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  // by size
  std::map<std::size_t, std::size_t> handed_out_;   // ever, by size
  std::span<std::byte> left_;                       // of the newest slab
  std::size_t in_use_ = 0;
};

/// Never destroyed: what lies in it may be freed late.
Arena& arena() {
  static Arena* const kArena = new Arena;
  return *kArena;
}

}  // namespace

void clear(std::span<std::byte> bytes) noexcept { OPENSSL_cleanse(bytes.data(), bytes.size()); }

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Result<void> draw(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return fail(ErrorCode::kSystem, fmt::format("getrandom: {}", std::strerror(errno)));
    }
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

void* allocate_secret(std::size_t bytes) noexcept try {
  return arena().allocate(bytes);
} catch (const std::bad_alloc&) {
  return nullptr;
}

void free_secret(void* memory, std::size_t bytes) noexcept {
  if (memory != nullptr) arena().free(memory, bytes);
}

std::size_t secret_bytes() noexcept { return arena().in_use(); }

}  // namespace gradwire::security
