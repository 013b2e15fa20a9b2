// SPDX-License-Identifier: BSD-3-Clause
#include "device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace gradwire::gpu_emu {
namespace {

constexpr std::size_t kPageBytes = 4096;

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

std::size_t round_up(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

Device& device(void* self) { return *static_cast<Device*>(self); }

}  // namespace

Device::Device(const Behaviour& behaviour) : behaviour_(behaviour) {
  face_.self = this;
  face_.launch = [](void* self, reduce::EmulatedDevice::Kernel kernel, void* argument) {
    return device(self).launch(kernel, argument);
  };
  face_.begin = [](void* self) { return device(self).begin(); };
  face_.stopping = [](void* self) {
    const std::lock_guard lock(device(self).work_mutex_);
    return device(self).stop_;
  };
  face_.accessible = [](void* self, const void* address, std::size_t bytes) {
    return device(self).accessible(address, bytes);
  };
  face_.export_memory = [](void* self, const void* address) {
    return device(self).export_memory(address);
  };
  thread_ = std::thread([this] { run(); });
}

Device::~Device() {
  {
    const std::lock_guard lock(work_mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  for (auto& [address, allocation] : allocations_) release(allocation);
}

int Device::allocate(std::size_t size, std::size_t align, void*& address) {
  const std::size_t total = behaviour_.memory_mib << 20;
  if (size > total) return -E2BIG;
  const std::unique_lock lock(memory_mutex_);
  if (size > total - used_bytes_) return -ENOMEM;
  Allocation made;
  made.bytes = size;
  // The address is a multiple of the page in any case.
  made.mapped_bytes = round_up(size, kPageBytes) + (align > kPageBytes ? align : 0);
  made.fd = memfd_create("gpu_emu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (made.fd < 0) return -errno;
  // The file has nothing but the allocation, so whoever maps it finds it at offset 0.
  void* base = MAP_FAILED;
  if (ftruncate(made.fd, static_cast<off_t>(round_up(size, kPageBytes))) == 0) {
    base = mmap(nullptr, made.mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
  }
  if (base == MAP_FAILED) {
    close(made.fd);
    return -ENOMEM;
  }
  made.base = static_cast<std::byte*>(base);
  const std::uintptr_t aligned =
      round_up(reinterpret_cast<std::uintptr_t>(base), align > kPageBytes ? align : kPageBytes);
  void* mapped = mmap(reinterpret_cast<void*>(aligned), round_up(size, kPageBytes),
                      behaviour_.guard ? PROT_NONE : PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                      made.fd, 0);
  if (mapped == MAP_FAILED) {
    release(made);
    return -ENOMEM;
  }
  used_bytes_ += size;
  allocations_.emplace(aligned, made);
  address = mapped;
  return 0;
}

void Device::release(Allocation& allocation) {
  if (allocation.cpu != nullptr) munmap(allocation.cpu, round_up(allocation.bytes, kPageBytes));
  munmap(allocation.base, allocation.mapped_bytes);
  close(allocation.fd);
}

int Device::free(void* address) {
  const std::unique_lock lock(memory_mutex_);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations_.end()) return -EINVAL;
  used_bytes_ -= found->second.bytes;
  release(found->second);
  allocations_.erase(found);
  return 0;
}

int Device::register_host(std::size_t size, void* address) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (begin + size < begin) return -EINVAL;
  const std::unique_lock lock(memory_mutex_);
  // The first one that ends after our begin must begin after our end.
  auto next = registered_.upper_bound(begin);
  if (next != registered_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second > begin) return -EEXIST;
  }
  if (next != registered_.end() && next->first < begin + size) return -EEXIST;
  registered_.emplace(begin, size);
  return 0;
}

int Device::unregister_host(void* address) {
  const std::unique_lock lock(memory_mutex_);
  return registered_.erase(reinterpret_cast<std::uintptr_t>(address)) == 1 ? 0 : -EINVAL;
}

int Device::cpu_map(std::size_t size, void* address, void*& mapped) {
  const std::unique_lock lock(memory_mutex_);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations_.end() || size > found->second.bytes) return -EINVAL;
  Allocation& allocation = found->second;
  if (allocation.cpu != nullptr) return -EBUSY;
  void* made = mmap(nullptr, round_up(allocation.bytes, kPageBytes), PROT_READ | PROT_WRITE,
                    MAP_SHARED, allocation.fd, 0);
  if (made == MAP_FAILED) return -ENOMEM;
  allocation.cpu = static_cast<std::byte*>(made);
  mapped = made;
  return 0;
}

int Device::cpu_unmap(void* address) {
  const std::unique_lock lock(memory_mutex_);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations_.end() || found->second.cpu == nullptr) return -EINVAL;
  munmap(found->second.cpu, round_up(found->second.bytes, kPageBytes));
  found->second.cpu = nullptr;
  return 0;
}

std::size_t Device::allocations() const {
  const std::shared_lock lock(memory_mutex_);
  return allocations_.size();
}

std::size_t Device::registrations() const {
  const std::shared_lock lock(memory_mutex_);
  return registered_.size();
}

bool Device::accessible(const void* address, std::size_t bytes) const {
  auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::uintptr_t end = begin + bytes;
  if (end < begin) return false;
  const std::shared_lock lock(memory_mutex_);
  const auto own = allocations_.upper_bound(begin);
  if (own != allocations_.begin()) {
    const auto& [start, allocation] = *std::prev(own);
    if (end <= start + allocation.bytes) return true;
  }
  // Adjacent registrations count as one.
  while (begin < end) {
    const auto next = registered_.upper_bound(begin);
    if (next == registered_.begin()) return false;
    const auto& [start, size] = *std::prev(next);
    if (begin >= start + size) return false;
    begin = start + size;
  }
  return true;
}

int Device::export_memory(const void* address) const {
  const std::shared_lock lock(memory_mutex_);
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations_.end()) return -EINVAL;
  // Sealed: whoever maps it must not be able to remove pages that the device uses.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (fcntl(found->second.fd, F_ADD_SEALS, kSeals) != 0 && errno != EPERM) return -errno;
  const int fd = fcntl(found->second.fd, F_DUPFD_CLOEXEC, 0);
  return fd < 0 ? -errno : fd;
}

int Device::launch(reduce::EmulatedDevice::Kernel kernel, void* argument) {
  {
    const std::lock_guard lock(work_mutex_);
    if (stop_) return -ENODEV;
    work_.push_back({kernel, argument, delay_ns() == 0 ? 0 : now_ns() + delay_ns()});
  }
  wake_.notify_one();
  return 0;
}

int Device::next_outcome() {
  const std::lock_guard lock(work_mutex_);
  ++batches_;
  return behaviour_.fail_every != 0 && batches_ % behaviour_.fail_every == 0 ? -EIO : 0;
}

int Device::begin() {
  if (behaviour_.delay_us != 0) {
    wait_until(now_ns() + delay_ns());
  }
  const int outcome = next_outcome();
  if (behaviour_.hang_after != 0 && batches_ == behaviour_.hang_after) {
    wait_until(now_ns() + static_cast<std::int64_t>(behaviour_.hang_ms) * 1'000'000);
  }
  return outcome;
}

/// The CPU cannot use a GPU's addresses. Here it must while a kernel runs, since it is the CPU
/// that runs it.
void Device::guard(bool closed) {
  if (!behaviour_.guard) return;
  const std::shared_lock lock(memory_mutex_);
  for (const auto& [address, allocation] : allocations_) {
    mprotect(reinterpret_cast<void*>(address), round_up(allocation.bytes, kPageBytes),
             closed ? PROT_NONE : PROT_READ | PROT_WRITE);
  }
}

void Device::wait_until(std::int64_t due_ns) {
  std::unique_lock lock(work_mutex_);
  while (!stop_) {
    const std::int64_t left = due_ns - now_ns();
    if (left <= 0) return;
    wake_.wait_for(lock, std::chrono::nanoseconds(left));
  }
}

void Device::run() {
  std::vector<Work> taken;
  while (true) {
    taken.clear();
    {
      std::unique_lock lock(work_mutex_);
      wake_.wait(lock, [this] { return stop_ || !work_.empty(); });
      if (stop_ && work_.empty()) return;
      // A single batch must not wait for others, which may never come.
      while (!work_.empty() && taken.size() < behaviour_.reorder) {
        taken.push_back(work_.front());
        work_.pop_front();
      }
    }
    for (auto work = taken.rbegin(); work != taken.rend(); ++work) {
      // If the order changes, each batch has its own delay, so that the order can be observed.
      if (work->due_ns != 0) {
        wait_until(behaviour_.reorder > 1 ? now_ns() + delay_ns() : work->due_ns);
      }
      const int outcome = next_outcome();
      if (behaviour_.hang_after != 0 && batches_ == behaviour_.hang_after) {
        wait_until(now_ns() + static_cast<std::int64_t>(behaviour_.hang_ms) * 1'000'000);
      }
      guard(false);
      work->kernel(work->argument, outcome);
      guard(true);
    }
  }
}

}  // namespace gradwire::gpu_emu
