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
  std::atomic<std::uint32_t> owner{0};
  std::atomic<bool> hit{false};
  std::atomic<bool> listed{false};  ///< among the hits that nobody has taken: not free
  std::atomic<std::int32_t> next_hit{-1};
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free);

std::array<Slot, kMaxGuardedRanges> g_slots;
std::atomic<std::size_t> g_slots_used{0};  ///< slots ever used: how far the handler looks
bool g_installed = false;

bool map_zeros(std::uintptr_t at, std::uintptr_t bytes) noexcept {
  return ::mmap(reinterpret_cast<void*>(at), bytes, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

void note_hit(std::size_t index) noexcept {
  Slot& slot = g_slots[index];
  if (slot.hit.exchange(true, std::memory_order_acq_rel)) return;
  slot.listed.store(true, std::memory_order_relaxed);
  std::int32_t first = detail::first_hit.load(std::memory_order_relaxed);
  do {
    slot.next_hit.store(first, std::memory_order_relaxed);
  } while (!detail::first_hit.compare_exchange_weak(first, static_cast<std::int32_t>(index),
                                                    std::memory_order_release,
                                                    std::memory_order_relaxed));
}

/// @return whether the page is there now.
bool replace_range(std::uintptr_t address) noexcept {
  const std::size_t used = g_slots_used.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < used; ++i) {
    Slot& slot = g_slots[i];
    const std::uintptr_t base = slot.base.load(std::memory_order_acquire);
    const std::uintptr_t end = slot.end.load(std::memory_order_relaxed);
    if (base == 0 || address < base || address >= end) continue;
    note_hit(i);
    if (map_zeros(base, end - base)) return true;
    // A host that promises no more memory than it has (vm.overcommit_memory = 2) may refuse it.
    const std::uintptr_t page_bytes = slot.page_bytes.load(std::memory_order_relaxed);
    return map_zeros(base + (address - base) / page_bytes * page_bytes, page_bytes);
  }
  return false;
}

void on_sigbus(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const int saved_errno = errno;
  if (!replace_range(reinterpret_cast<std::uintptr_t>(info->si_addr))) {
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

bool take_hit(std::uint32_t& owner) noexcept {
  // Only the one thread that calls it removes slots, so the first stays in its place if it is still
  // the first.
  std::int32_t first = detail::first_hit.load(std::memory_order_acquire);
  do {
    if (first < 0) return false;
  } while (!detail::first_hit.compare_exchange_weak(
      first, g_slots[static_cast<std::size_t>(first)].next_hit.load(std::memory_order_relaxed),
      std::memory_order_acquire));
  Slot& slot = g_slots[static_cast<std::size_t>(first)];
  owner = slot.owner.load(std::memory_order_relaxed);
  slot.listed.store(false, std::memory_order_release);
  return true;
}

GuardedRange::GuardedRange(const void* base, std::uint64_t bytes, std::uint64_t page_bytes,
                           std::uint32_t owner) noexcept {
  for (std::size_t i = 0; i < g_slots.size(); ++i) {
    Slot& slot = g_slots[i];
    if (slot.base.load(std::memory_order_relaxed) != 0 ||
        slot.listed.load(std::memory_order_acquire)) {
      continue;
    }
    const auto start = reinterpret_cast<std::uintptr_t>(base);
    slot.end.store(start + bytes, std::memory_order_relaxed);
    slot.page_bytes.store(page_bytes, std::memory_order_relaxed);
    slot.owner.store(owner, std::memory_order_relaxed);
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
