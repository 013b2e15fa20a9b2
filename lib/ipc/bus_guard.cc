// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/bus_guard.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace gradwire::ipc {
namespace {

/// `base` is written last and cleared first: 0 is a free slot.
struct Slot {
  std::atomic<std::uintptr_t> base{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<std::uintptr_t> page_bytes{0};
  std::atomic<bool> hit{false};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

std::array<Slot, kMaxGuardedRanges> g_slots;
std::atomic<std::size_t> g_slots_used{0};  ///< slots ever used: how far the handler looks
bool g_installed = false;

/// @return whether the page is there now.
bool replace_page(std::uintptr_t address) noexcept {
  const std::size_t used = g_slots_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    Slot& slot = g_slots[i];
    const std::uintptr_t base = slot.base.load(std::memory_order_acquire);
    if (base == 0 || address < base || address >= slot.end.load(std::memory_order_relaxed)) {
      continue;
    }
    const std::uintptr_t page_bytes = slot.page_bytes.load(std::memory_order_relaxed);
    const std::uintptr_t page = base + (address - base) / page_bytes * page_bytes;
    slot.hit.store(true, std::memory_order_release);
    return ::mmap(reinterpret_cast<void*>(page), page_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

void on_sigbus(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  if (!replace_page(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
    // Not ours: the access happens again, and then the default action has its way.
    ::signal(SIGBUS, SIG_DFL);
  }
  errno = saved_errno;
}

}  // namespace

Result<void> install_bus_guard() {
  if (g_installed) return {};
  struct sigaction action = {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(SIGBUS, &action, nullptr) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("sigaction(SIGBUS): {}", std::strerror(errno)));
  }
  g_installed = true;
  return {};
}

GuardedRange::GuardedRange(const void* base, std::uint64_t bytes,
                           std::uint64_t page_bytes) noexcept {
  for (std::size_t i = 0; i < g_slots.size(); ++i) {
    Slot& slot = g_slots[i];
    if (slot.base.load(std::memory_order_relaxed) != 0) continue;
    const auto start = reinterpret_cast<std::uintptr_t>(base);
    slot.end.store(start + bytes, std::memory_order_relaxed);
    slot.page_bytes.store(page_bytes, std::memory_order_relaxed);
    slot.hit.store(false, std::memory_order_relaxed);
    slot.base.store(start, std::memory_order_release);
    if (i >= g_slots_used.load(std::memory_order_relaxed)) {
      g_slots_used.store(i + 1, std::memory_order_release);
    }
    slot_ = static_cast<int>(i);
    return;
  }
}

GuardedRange::GuardedRange(GuardedRange&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

GuardedRange& GuardedRange::operator=(GuardedRange&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

GuardedRange::~GuardedRange() {
  if (slot_ >= 0) {
    g_slots[static_cast<std::size_t>(slot_)].base.store(0, std::memory_order_release);
  }
}

bool GuardedRange::was_hit() const noexcept {
  return slot_ >= 0 && g_slots[static_cast<std::size_t>(slot_)].hit.load(std::memory_order_acquire);
}

}  // namespace gradwire::ipc
