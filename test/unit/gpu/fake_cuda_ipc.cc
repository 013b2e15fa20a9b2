// SPDX-License-Identifier: BSD-3-Clause
// The fake's memory, streams and events, which processes can share. An allocation is a memfd, and
// its handle says where another process finds it: /proc/PID/fd. A last page of the file, outside
// the allocation, has a number that no other allocation has: so a handle of memory that is gone is
// found out. Streams are queues that a test can hold back.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fake_cuda.h"

namespace {

using namespace gradwire::fake_cuda;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kBlock = std::size_t{2} << 20;

struct Handle {
  static constexpr std::uint64_t kMemory = 0x6d656d, kEvent = 0x657674;
  std::uint64_t kind = 0;
  std::uint64_t nonce = 0;
  std::uint64_t bytes = 0;
  std::int32_t pid = 0;
  std::int32_t fd = -1;
  unsigned char rest[32] = {};
};
static_assert(sizeof(Handle) == 64);

/// A file of `bytes` and a page that has the nonce.
struct Shared {
  int fd = -1;
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  std::uint64_t nonce = 0;

  [[nodiscard]] std::size_t mapped() const { return bytes + kPage; }
  void release() const {
    munmap(base, mapped());
    if (fd >= 0) close(fd);
  }
};

struct Marks {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> passed;
  std::atomic<bool> failed;
};

struct Event {
  Shared shared;
  bool imported = false;
  ~Event() {
    if (shared.base != nullptr) shared.release();
  }
  [[nodiscard]] Marks& marks() const { return *reinterpret_cast<Marks*>(shared.base); }
};

struct Stream {
  std::deque<std::function<bool(Stream&)>> work;  ///< each says whether it is done
  bool held = false;
  bool failed = false;
  /// @return whether anything was done.
  bool run() {
    bool any = false;
    for (; !work.empty() && work.front()(*this); any = true) work.pop_front();
    return any;
  }
};

std::mutex mutex;
std::map<unsigned long long, Shared> allocations;  ///< by the address given out
std::map<unsigned long long, Shared> imports;
std::map<void*, std::shared_ptr<Event>> events;  ///< what streams were given of one outlives it
std::map<void*, Stream*> streams;
std::map<void*, std::unique_ptr<Stream>> destroyed;  ///< until they have done what they were given
Stream default_stream;
std::size_t used = 0;
bool held = false;

std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

bool make_shared_file(std::size_t bytes, Shared& out) {
  static std::atomic<std::uint64_t> next{1};
  out.bytes = round_up(bytes);
  out.fd = memfd_create("fake_cuda", MFD_CLOEXEC);
  if (out.fd < 0 || ftruncate(out.fd, static_cast<off_t>(out.mapped())) != 0) return false;
  void* base = mmap(nullptr, out.mapped(), PROT_READ | PROT_WRITE, MAP_SHARED, out.fd, 0);
  if (base == MAP_FAILED) return false;
  out.base = static_cast<std::byte*>(base);
  out.nonce = static_cast<std::uint64_t>(getpid()) << 32 | next.fetch_add(1);
  std::memcpy(out.base + out.bytes, &out.nonce, sizeof out.nonce);
  return true;
}

Handle handle_of(std::uint64_t kind, const Shared& shared) {
  Handle handle;
  handle.kind = kind;
  handle.nonce = shared.nonce;
  handle.bytes = shared.bytes;
  handle.pid = getpid();
  handle.fd = shared.fd;
  return handle;
}

int open_handle(std::uint64_t kind, const Handle& handle, Shared& out) {
  if (handle.kind != kind) return kInvalidValue;
  // As CUDA has it: not in the process that exported it.
  if (handle.pid == getpid()) return kInvalidContext;
  const std::string path =
      "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return kInvalidHandle;
  struct stat info = {};
  const bool fits =
      fstat(fd, &info) == 0 && static_cast<std::uint64_t>(info.st_size) == handle.bytes + kPage;
  out.bytes = handle.bytes;
  void* base =
      fits ? mmap(nullptr, out.mapped(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  close(fd);
  if (base == MAP_FAILED) return kInvalidHandle;
  out.base = static_cast<std::byte*>(base);
  std::memcpy(&out.nonce, out.base + out.bytes, sizeof out.nonce);
  if (out.nonce == handle.nonce) return kSuccess;
  out.release();
  return kInvalidHandle;
}

Stream* stream_of(void* stream) {
  if (stream == nullptr) return &default_stream;
  const auto found = streams.find(stream);
  return found == streams.end() ? nullptr : found->second;
}

/// Runs what may run, until nothing more does: a stream may wait for another.
/// @param even  one that runs although it is held back, and whatever it waits for
void run_streams(Stream* even = nullptr) {
  bool any = true;
  while (any) {
    any = false;
    const auto run = [&](Stream& stream) {
      if (even != nullptr || (!held && !stream.held)) any = stream.run() || any;
    };
    // Those that waited for it go on by themselves.
    if (even != nullptr && even->work.empty()) return run_streams();
    run(default_stream);
    for (const auto& [key, stream] : streams) run(*stream);
    for (const auto& [key, stream] : destroyed) run(*stream);
    std::erase_if(destroyed, [](const auto& each) { return each.second->work.empty(); });
  }
}

int give(void* stream, std::function<bool(Stream&)> work) {
  Stream* to = stream_of(stream);
  if (to == nullptr) return kInvalidHandle;
  to->work.push_back(std::move(work));
  run_streams();
  return kSuccess;
}

}  // namespace

bool gradwire::fake_cuda::find_allocation(std::uintptr_t address, std::uintptr_t& begin,
                                          std::uintptr_t& end) {
  const std::lock_guard lock(mutex);
  for (const auto* table : {&allocations, &imports}) {
    const auto after = table->upper_bound(address);
    if (after == table->begin()) continue;
    const auto& [start, shared] = *std::prev(after);
    begin = start;
    end = reinterpret_cast<std::uintptr_t>(shared.base) + shared.bytes;
    if (address < end) return true;
  }
  return false;
}

extern "C" {
int fake_cuda_registrations();
void fake_cuda_hold_streams(int hold) {
  const std::lock_guard lock(mutex);
  held = hold != 0;
  run_streams();
}
void fake_cuda_hold_stream(void* stream, int hold) {
  const std::lock_guard lock(mutex);
  if (Stream* found = stream_of(stream)) found->held = hold != 0;
  run_streams();
}
void* fake_cuda_new_stream() {
  const std::lock_guard lock(mutex);
  auto* stream = new Stream;
  streams[stream] = stream;
  return stream;
}
void fake_cuda_held(Held* out) {
  const std::lock_guard lock(mutex);
  *out = {static_cast<int>(allocations.size()), static_cast<int>(imports.size()), 0,
          static_cast<int>(streams.size()), fake_cuda_registrations()};
  for (const auto& [key, event] : events) ++(event->imported ? out->imports : out->events);
}

int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  if (bytes > total_memory() - used) return kOutOfMemory;
  // A small allocation does not begin at a page, since a real one shares its block with others.
  const std::size_t offset = bytes % kBlock == 0 ? 0 : 256;
  Shared made;
  if (!make_shared_file(bytes + offset, made)) return kOutOfMemory;
  // Filled with what a GPU's memory may hold: gpu_cuda has to clear it.
  std::memset(made.base, 0xee, made.bytes);
  *address = reinterpret_cast<unsigned long long>(made.base + offset);
  used += made.bytes;
  allocations[*address] = made;
  return kSuccess;
}
int cuMemFree_v2(unsigned long long address) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  const auto found = allocations.find(address);
  if (found == allocations.end()) return kInvalidValue;
  // From here on its handle opens nothing, even where the descriptor's number is another's.
  std::memset(found->second.base + found->second.bytes, 0, sizeof found->second.nonce);
  used -= found->second.bytes;
  found->second.release();
  allocations.erase(found);
  return kSuccess;
}
int cuMemsetD8_v2(unsigned long long address, unsigned char value, std::size_t bytes) {
  if (!has_context()) return kInvalidContext;
  std::memset(reinterpret_cast<void*>(address), value, bytes);
  return kSuccess;
}
int cuMemGetAddressRange_v2(unsigned long long* base, std::size_t* bytes,
                            unsigned long long address) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  for (const auto* table : {&allocations, &imports}) {
    for (const auto& [start, shared] : *table) {
      const auto first = reinterpret_cast<unsigned long long>(shared.base);
      if (address < start || address >= first + shared.bytes) continue;
      *base = start;
      *bytes = first + shared.bytes - start;
      return kSuccess;
    }
  }
  return kInvalidValue;
}

int cuIpcGetMemHandle(Handle* out, unsigned long long address) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  const auto found = allocations.find(address);
  // Stricter than CUDA, which would hand out its neighbours in the block too.
  if (found == allocations.end() || found->second.bytes % kBlock != 0) return kInvalidValue;
  *out = handle_of(Handle::kMemory, found->second);
  return kSuccess;
}
int cuIpcOpenMemHandle_v2(unsigned long long* address, Handle handle, unsigned flags) {
  if (!has_context()) return kInvalidContext;
  if (flags != 1) return kInvalidValue;
  Shared opened;
  if (const int failed = open_handle(Handle::kMemory, handle, opened); failed != kSuccess) {
    return failed;
  }
  const std::lock_guard lock(mutex);
  *address = reinterpret_cast<unsigned long long>(opened.base);
  imports[*address] = opened;
  return kSuccess;
}
int cuIpcCloseMemHandle(unsigned long long address) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  const auto found = imports.find(address);
  if (found == imports.end()) return kInvalidValue;
  found->second.release();
  imports.erase(found);
  return kSuccess;
}

int cuMemcpyAsync(unsigned long long to, unsigned long long from, std::size_t bytes, void* stream) {
  if (!has_context()) return kInvalidContext;
  pass_gate_of_copies();
  const std::lock_guard lock(mutex);
  if (fails_now(kCopyRefused)) return kInvalidValue;
  return give(stream, [=](Stream& self) {
    if (fails_now(kCopyFails)) self.failed = true;
    if (self.failed) return true;
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
    return true;
  });
}
int cuStreamCreate(void** out, unsigned) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  auto* stream = new Stream;
  streams[stream] = stream;
  *out = stream;
  return kSuccess;
}
int cuStreamDestroy_v2(void* stream) {
  const std::lock_guard lock(mutex);
  const auto found = streams.find(stream);
  if (found == streams.end()) return kInvalidHandle;
  // As CUDA has it: at once, and what the stream was given is done all the same.
  found->second->held = false;
  destroyed[stream].reset(found->second);
  streams.erase(found);
  run_streams();
  return kSuccess;
}
int cuStreamSynchronize(void* stream) {
  const std::lock_guard lock(mutex);
  Stream* found = stream_of(stream);
  if (found == nullptr) return kInvalidHandle;
  run_streams(found);
  return kSuccess;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  if (!has_context()) return kInvalidContext;
  if (fails_now(kStreamWait)) return kInvalidValue;
  const std::lock_guard lock(mutex);
  const auto found = events.find(event);
  if (found == events.end()) return kInvalidHandle;
  const std::uint64_t number = found->second->marks().recorded.load();
  return give(stream, [event = found->second, number](Stream& self) {
    const Marks& marks = event->marks();
    if (marks.failed.load()) self.failed = true;
    return marks.passed.load() >= number;
  });
}

int cuEventCreate(void** out, unsigned flags) {
  if (!has_context()) return kInvalidContext;
  if ((flags & 4) != 0 && (flags & 2) == 0) return kInvalidValue;
  const std::lock_guard lock(mutex);
  auto event = std::make_shared<Event>();
  if (!make_shared_file(sizeof(Marks), event->shared)) return kOutOfMemory;
  events[event.get()] = event;
  *out = event.get();
  return kSuccess;
}
int cuEventDestroy_v2(void* event) {
  const std::lock_guard lock(mutex);
  return events.erase(event) == 1 ? kSuccess : kInvalidHandle;
}
int cuEventRecord(void* event, void* stream) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  const auto found = events.find(event);
  if (found == events.end()) return kInvalidHandle;
  const std::uint64_t number = found->second->marks().recorded.fetch_add(1) + 1;
  return give(stream, [event = found->second, number](Stream& self) {
    if (self.failed) event->marks().failed.store(true);
    event->marks().passed.store(number);
    return true;
  });
}
int cuEventQuery(void* event) {
  const std::lock_guard lock(mutex);
  const auto found = events.find(event);
  if (found == events.end()) return kInvalidHandle;
  const Marks& marks = found->second->marks();
  if (marks.failed.load()) return kLaunchFailed;
  return marks.passed.load() >= marks.recorded.load() ? kSuccess : kNotReady;
}
int cuIpcGetEventHandle(Handle* out, void* event) {
  if (!has_context()) return kInvalidContext;
  const std::lock_guard lock(mutex);
  const auto found = events.find(event);
  if (found == events.end() || found->second->imported) return kInvalidHandle;
  *out = handle_of(Handle::kEvent, found->second->shared);
  return kSuccess;
}
int cuIpcOpenEventHandle(void** out, Handle handle) {
  if (!has_context()) return kInvalidContext;
  auto event = std::make_shared<Event>();
  event->imported = true;
  if (const int failed = open_handle(Handle::kEvent, handle, event->shared); failed != kSuccess) {
    // It has released what it opened.
    event->shared.base = nullptr;
    return failed;
  }
  const std::lock_guard lock(mutex);
  events[event.get()] = event;
  *out = event.get();
  return kSuccess;
}
}
