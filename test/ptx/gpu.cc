// SPDX-License-Identifier: BSD-3-Clause
#include "gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "texts.h"

namespace gradwire::ptx {

using reduce::cuda::Kernel;

namespace {

constexpr std::uint32_t kStepsPerTurn = 64;  ///< of a persistent kernel

std::string setting(const char* name, const char* otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : text;
}

std::mutex forbidden_mutex;
std::map<std::uint64_t, std::uint64_t> forbidden;  ///< ends by begins

/// Asks the tests' libcuda.so.1.
bool known_to_cuda(std::uint64_t address, Memory::Range& range) {
  using Find = int(const void*, std::uintptr_t*, std::uintptr_t*);
  static Find* const find = [] {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    return library == nullptr ? nullptr
                              : reinterpret_cast<Find*>(dlsym(library, "fake_cuda_range"));
  }();
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  const auto* at = reinterpret_cast<const void*>(static_cast<std::uintptr_t>(address));
  if (find == nullptr || find(at, &begin, &end) == 0) return false;
  range = {begin, end};
  const std::lock_guard lock(forbidden_mutex);
  const auto after = forbidden.upper_bound(address);
  if (after != forbidden.end()) range.end = std::min(range.end, after->first);
  if (after == forbidden.begin()) return true;
  const std::uint64_t before = std::prev(after)->second;
  range.begin = std::max(range.begin, before);
  return address >= before;
}

}  // namespace

const char* name_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::kSumFloat32:
      return "sum_kernelINS0_11ScalarFloatIfE";
    case Kernel::kSumFloat64:
      return "sum_kernelINS0_11ScalarFloatIdE";
    case Kernel::kSumFloat16:
      return "sum_kernelINS0_10ScalarHalfE";
    case Kernel::kSumBfloat16:
      return "sum_kernelINS0_12ScalarBfloatE";
    case Kernel::kBatch:
      return "batch_kernel";
    case Kernel::kPersistent:
      return "persistent_kernel";
    case Kernel::kFormat:
      return "format_kernel";
  }
  return "kernel?";
}

struct Gpu::Stream {
  std::deque<Work> queue;
  bool busy = false;  ///< with what it took from the queue
  bool ends = false;
  std::unique_ptr<Machine> machine;  ///< of its persistent kernel
  bool runs = false;                 ///< the persistent kernel
  std::uint64_t counted = 0;         ///< the machine's instructions in Ran
};

Gpu& Gpu::get() {
  static Gpu gpu;
  return gpu;
}

Gpu::Gpu()
    : seed_(std::strtoull(setting("GRADWIRE_PTX_SEED", "0").c_str(), nullptr, 10)),
      module_(parse(text_of(setting("GRADWIRE_PTX_ARCHITECTURE", "sm_90")))),
      random_(seed_),
      launched_(module_, {.seed = seed_}),
      thread_([this] { run(); }) {
  launched_.memory.look_elsewhere(known_to_cuda);
}

Gpu::~Gpu() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  awake_.notify_one();
  thread_.join();
}

void Gpu::report() {
  for (const auto& [name, ran] : ran_) {
    std::fprintf(stderr, "PTX: %s: %llu launches, %llu instructions\n", name.c_str(),
                 static_cast<unsigned long long>(ran.launches),
                 static_cast<unsigned long long>(ran.instructions));
  }
  ran_.clear();
}

Gpu::Stream* Gpu::make_stream() {
  const std::lock_guard lock(mutex_);
  streams_.push_back(std::make_shared<Stream>());
  auto& stream = *streams_.back();
  stream.machine =
      std::make_unique<Machine>(module_, MachineOptions{seed_ == 0 ? 0 : seed_ + ++streams_made_});
  stream.machine->memory.look_elsewhere(known_to_cuda);
  return &stream;
}

void Gpu::end_stream(Stream* stream) {
  {
    const std::lock_guard lock(mutex_);
    stream->ends = true;
  }
  awake_.notify_one();
}

void Gpu::give(Stream* stream, Work work) {
  {
    const std::lock_guard lock(mutex_);
    stream->queue.push_back(std::move(work));
  }
  awake_.notify_one();
}

void Gpu::launch(Stream* stream, Kernel kernel, const void* parameters, const LaunchShape& shape) {
  const auto* bytes = static_cast<const std::byte*>(parameters);
  const std::size_t size = module_.function(name_of(kernel)).parameter_bytes;
  {
    const std::lock_guard lock(mutex_);
    calls_.launched = shape;
  }
  give(stream, [this, stream, kernel, copy = std::vector<std::byte>(bytes, bytes + size), shape] {
    start(*stream, kernel, copy, shape);
  });
}

bool Gpu::is_idle(Stream* stream) {
  const std::lock_guard lock(mutex_);
  return stream->queue.empty() && !stream->busy && !stream->runs;
}

void Gpu::hold(bool held) {
  {
    const std::lock_guard lock(mutex_);
    held_ = held;
  }
  awake_.notify_one();
}

void Gpu::forbid(const void* address, std::size_t bytes) {
  const std::lock_guard lock(forbidden_mutex);
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  forbidden[begin] = begin + bytes;
}

void Gpu::allow(const void* address) {
  const std::lock_guard lock(forbidden_mutex);
  forbidden.erase(reinterpret_cast<std::uintptr_t>(address));
}

void Gpu::count_copy() {
  const std::lock_guard lock(mutex_);
  ++calls_.copies;
}

void Gpu::count_question() {
  const std::lock_guard lock(mutex_);
  ++calls_.questions;
}

Gpu::Calls Gpu::calls() {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::string Gpu::fault() {
  const std::lock_guard lock(mutex_);
  return fault_;
}

bool Gpu::has_work() const {
  return std::ranges::any_of(streams_, [](const auto& stream) {
    return stream->runs || !stream->queue.empty() || stream->ends;
  });
}

void Gpu::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    awake_.wait(lock, [this] { return ended_ || (!held_ && has_work()); });
    if (ended_) return;
    auto turns = streams_;
    if (seed_ != 0) std::ranges::shuffle(turns, random_);
    for (const auto& stream : turns) {
      if (!stream->runs && stream->queue.empty()) {
        if (!stream->ends) continue;
        std::erase(streams_, stream);
        if (streams_.empty()) report();
        continue;
      }
      lock.unlock();
      std::string fault;
      try {
        advance(*stream);
      } catch (const Fault& stopped) {
        fault = stopped.what();
      }
      lock.lock();
      if (fault.empty()) continue;
      std::fprintf(stderr, "PTX: a kernel is stopped: %s\n", fault.c_str());
      fault_ = fault;
      for (const auto& other : streams_) {
        other->queue.clear();
        other->runs = other->busy = false;
      }
    }
  }
}

void Gpu::advance(Stream& stream) {
  if (stream.runs) {
    stream.machine->memory.forget();
    bool more = true;
    for (std::uint32_t i = 0; more && i < kStepsPerTurn; ++i) more = stream.machine->step();
    const std::lock_guard lock(mutex_);
    ran_[name_of(Kernel::kPersistent)].instructions +=
        stream.machine->instructions() -
        std::exchange(stream.counted, stream.machine->instructions());
    stream.runs = more;
    return;
  }
  Work work;
  {
    const std::lock_guard lock(mutex_);
    work = std::move(stream.queue.front());
    stream.queue.pop_front();
    stream.busy = true;
  }
  work();
  const std::lock_guard lock(mutex_);
  stream.busy = false;
}

void Gpu::start(Stream& stream, Kernel kernel, const std::vector<std::byte>& parameters,
                const LaunchShape& shape) {
  const Function& function = module_.function(name_of(kernel));
  const std::uint64_t before = launched_.instructions();
  if (shape.cooperative) {
    stream.machine->start(function, parameters, shape.blocks, shape.threads);
  } else {
    launched_.memory.forget();
    launched_.run(function, parameters, shape.blocks, shape.threads);
  }
  const std::lock_guard lock(mutex_);
  stream.runs = shape.cooperative;
  Ran& ran = ran_[name_of(kernel)];
  ++ran.launches;
  ran.instructions += launched_.instructions() - before;
}

}  // namespace gradwire::ptx
