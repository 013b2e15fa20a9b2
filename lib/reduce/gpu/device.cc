// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/gpu/device.h"

#include <fmt/format.h>
#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_malloc.h>

#include <algorithm>

#include "reduce/gpu/emulated_device.h"

namespace gradwire::reduce {
namespace {

constexpr const char* kEmulatedPrefix = "gpu_emu";
/// The longest wait for a persistent kernel to park. It finishes its batches first, which takes
/// milliseconds.
constexpr TimeNs kPauseNs = 5'000'000'000;

class CudaReadyEvent final : public ReadyEvent {
 public:
  explicit CudaReadyEvent(std::unique_ptr<gpu::Event> event) : event_(std::move(event)) {}
  [[nodiscard]] State state() noexcept override {
    switch (event_->state()) {
      case gpu::Event::State::kPending:
        return State::kPending;
      case gpu::Event::State::kPassed:
        return State::kReady;
      case gpu::Event::State::kFailed:
        break;
    }
    return State::kFailed;
  }

 private:
  std::unique_ptr<gpu::Event> event_;
};

std::string device_names() {
  std::string names;
  std::int16_t id = 0;
  RTE_GPU_FOREACH(id) {
    rte_gpu_info info{};
    if (rte_gpu_info_get(id, &info) != 0) continue;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
  }
  return names.empty() ? "none" : names;
}

}  // namespace

class GpuDevice::Quiet {
 public:
  explicit Quiet(GpuDevice& device) : device_(device), lock_(device.quiet_) {
    for (GpuQueue* queue : device_.queues_) ok_ &= queue->executor().pause(kPauseNs);
  }
  ~Quiet() {
    for (GpuQueue* queue : device_.queues_) queue->executor().resume();
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;
  [[nodiscard]] bool ok() const noexcept { return ok_; }

 private:
  GpuDevice& device_;
  const std::lock_guard<std::mutex> lock_;
  bool ok_ = true;
};

Result<std::unique_ptr<GpuDevice>> GpuDevice::open(const GpuOptions& options) {
  std::unique_ptr<GpuDevice> device(new GpuDevice(options));
  if (auto found = device->find(); !found) return tl::unexpected(found.error());
  if (auto chosen = device->choose_path(); !chosen) return tl::unexpected(chosen.error());
  if (options.client_memory) {
    if (auto shares = device->check_sharing(); !shares) return tl::unexpected(shares.error());
  }
  return device;
}

GpuDevice::~GpuDevice() = default;

void GpuDevice::close() noexcept { rte_gpu_close(id_); }

Result<void> GpuDevice::find() {
  std::int16_t id = 0;
  RTE_GPU_FOREACH(id) {
    rte_gpu_info info{};
    if (rte_gpu_info_get(id, &info) != 0 || options_.device != info.name) continue;
    id_ = id;
    context_ = info.context;
    processors_ = info.processor_count;
    memory_bytes_ = info.total_memory;
    if (info.page_size != 0) page_bytes_ = info.page_size;
    numa_node_ = info.numa_node;
    emulated_ = options_.device.starts_with(kEmulatedPrefix);
    return {};
  }
  return fail(
      ErrorCode::kNotFound,
      fmt::format("gpu.device = {}: the EAL has no GPU of this name (it has: {}); load its driver "
                  "and create it, such as by -d librte_gpu_cuda.so --vdev gpu_cuda0,id=0",
                  options_.device, device_names()));
}

Result<void> GpuDevice::fall_back(const std::string& why_no_gpudirect) {
  options_.why_no_gpudirect = why_no_gpudirect;
  path_ = PayloadPath::kMapped;
  return choose_path();
}

Result<void> GpuDevice::choose_path() {
  path_reason_ = "as configured";
  if (options_.staging == Staging::kMapped) return {};  // kMapped is where path_ begins
  const auto why_not = why_not_cpu_mapping();
  std::string passed_by;
  if (!why_not && options_.staging == Staging::kCopy) return tl::unexpected(why_not.error());
  const std::string reason = why_not ? *why_not : why_not.error().message;
  if (options_.staging == Staging::kGpuDirect || options_.staging == Staging::kAuto) {
    const std::string refused = why_not_gpudirect(reason);
    if (refused.empty()) {
      path_ = PayloadPath::kGpuDirect;
      path_reason_ = "every port receives payloads into its memory";
      return {};
    }
    if (options_.staging == Staging::kGpuDirect) {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("GPU {}: gpu.staging = gpudirect: {}: choose copy or mapped",
                              options_.device, refused));
    }
    passed_by = "gpudirect: " + refused;
  }
  if (reason.empty()) {
    path_ = PayloadPath::kCopyMapped;
    path_reason_ = "its memory can be mapped for the CPU";
  } else if (options_.staging == Staging::kCopy) {
    path_ = PayloadPath::kCopyEngine;
    path_reason_ = reason;
  }
  if (options_.staging == Staging::kAuto) {
    // The copy engine is never chosen here, since a copy for each packet costs the lane more than
    // the kernel's reads over the bus.
    if (path_ == PayloadPath::kMapped) {
      passed_by += "; copy: " + reason;
      path_reason_ = "the next best that works: " + passed_by;
    }
    warnings_.push_back(fmt::format("GPU {}: gpu.staging = auto falls back to {}: {}",
                                    options_.device, name_of(path_), passed_by));
  }
  if (path_ == PayloadPath::kCopyEngine && options_.kernel == KernelMode::kPersistent) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("gpu.kernel = persistent with gpu.staging = copy: {}, and a copy "
                            "engine waits for a kernel to end, which a persistent one never does; "
                            "choose gpu.kernel = launch or gpu.staging = mapped",
                            path_reason_));
  }
  return {};
}

std::string GpuDevice::why_not_gpudirect(const std::string& why_not_mapping) const {
  if (!options_.why_no_gpudirect.empty()) return options_.why_no_gpudirect;
  if (options_.kernel == KernelMode::kPersistent) {
    return "gpu.kernel = persistent: only kernels that start after a port has written into GPU "
           "memory are sure to see it";
  }
  if (!why_not_mapping.empty()) {
    return fmt::format(
        "the CPU must be able to read packets other than chunks that ports put there: {}",
        why_not_mapping);
  }
  return {};
}

Result<std::string> GpuDevice::why_not_cpu_mapping() const {
  // Whether GPU memory can be mapped shows when it is tried.
  constexpr std::size_t kProbeBytes = 65'536;
  void* probe = rte_gpu_mem_alloc(id_, kProbeBytes, 65'536);
  if (probe == nullptr) {
    return fail(
        ErrorCode::kResourceExhausted,
        error_text(fmt::format("{} bytes of its memory could not be allocated", kProbeBytes)));
  }
  const bool mapped = rte_gpu_mem_cpu_map(id_, kProbeBytes, probe) != nullptr;
  const bool ordered = mapped && rte_gpu_wmb(id_) == 0;
  if (mapped) rte_gpu_mem_cpu_unmap(id_, probe);
  rte_gpu_mem_free(id_, probe);
  if (!mapped) return "its memory cannot be mapped for the CPU (no GDRCopy)";
  return ordered ? ""
                 : "it neither orders what others write into its memory nor lets the CPU flush it";
}

std::string GpuDevice::error_text(const std::string& what) const {
  return fmt::format("GPU {}: {}: {}", options_.device, what,
                     rte_strerror(rte_errno < 0 ? -rte_errno : rte_errno));
}

std::vector<std::string> GpuDevice::facts() const {
  return {
      fmt::format("GPU {}: {}, {} multiprocessors, {} MiB, NUMA node {}", options_.device,
                  emulated_ ? "emulated in host memory" : "CUDA", processors_, memory_bytes_ >> 20,
                  numa_node_ < 0 ? "unknown" : fmt::format("{}", numa_node_)),
      fmt::format("GPU {}: reduces every chunk; path of payloads: {} ({}); kernels: {}",
                  options_.device, name_of(path_), path_reason_, name_of(options_.kernel))};
}

Result<void> GpuDevice::register_host(void* address, std::size_t bytes, const std::string& what) {
  const Quiet quiet(*this);
  if (!quiet.ok()) {
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("GPU {}: {} could not be registered: its persistent kernel did not pause",
                    options_.device, what));
  }
  if (rte_gpu_mem_register(id_, bytes, address) == 0) return {};
  return fail(ErrorCode::kResourceExhausted,
              error_text(fmt::format("{} ({} bytes) could not be registered", what, bytes)));
}

void GpuDevice::unregister_host(void* address) noexcept {
  const Quiet quiet(*this);
  rte_gpu_mem_unregister(id_, address);
}

Result<void*> GpuDevice::allocate_host(std::size_t bytes, const char* what) {
  // Whole pages, so that nothing else that is registered shares a page: to a copy engine, memory
  // that was registered in pieces is not one range.
  constexpr std::size_t kPageBytes = 4096;
  bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  void* memory = rte_zmalloc("gradwire_gpu", bytes, kPageBytes);
  if (memory == nullptr) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("{} bytes of EAL memory, which a GPU is to read for {}, could not be "
                            "allocated: give the "
                            "EAL more (-m)",
                            bytes, what));
  }
  if (auto registered = register_host(memory, bytes, what); !registered) {
    rte_free(memory);
    return tl::unexpected(registered.error());
  }
  return memory;
}

void GpuDevice::free_host(void* memory) noexcept {
  unregister_host(memory);
  rte_free(memory);
}

Result<std::byte*> GpuDevice::allocate(std::size_t bytes, std::uint32_t align) {
  const Quiet quiet(*this);
  void* memory = quiet.ok() ? rte_gpu_mem_alloc(id_, bytes, align) : nullptr;
  if (memory == nullptr) {
    return fail(ErrorCode::kResourceExhausted,
                error_text(fmt::format("{} bytes of its memory could not be allocated", bytes)));
  }
  return static_cast<std::byte*>(memory);
}

Result<void> GpuDevice::check_sharing() {
  if (emulated_) return {};
  auto opened = gpu::Device::of_context(context_);
  if (!opened) {
    return fail(opened.error().code, fmt::format("GPU {}: gpu.client_memory = gpu: {}",
                                                 options_.device, opened.error().message));
  }
  cuda_ = std::move(*opened);
  // Tests now whether this GPU can share memory, not when the first client comes.
  auto tried = allocate_shared(1);
  if (!tried) return tl::unexpected(tried.error());
  free(tried->address);
  auto event = make_ready_event();
  if (!event) return tl::unexpected(event.error());
  return {};
}

Result<SharedGpuMemory> GpuDevice::allocate_shared(std::size_t bytes) {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t unit = emulated_ ? kPageBytes : gpu::Device::kExportBytes;
  if (bytes > SIZE_MAX - unit) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} bytes of GPU memory are more than there can be", bytes));
  }
  SharedGpuMemory out;
  out.bytes = (bytes + unit - 1) / unit * unit;
  // CUDA can only export an allocation from its start, so no alignment is requested beyond CUDA's
  // own.
  auto memory = allocate(out.bytes, emulated_ ? kPageBytes : 0);
  if (!memory) return tl::unexpected(memory.error());
  out.address = *memory;
  auto shared = share(out);
  if (!shared) free(out.address);
  return shared;
}

Result<SharedGpuMemory> GpuDevice::share(SharedGpuMemory memory) {
  if (emulated_) {
    const auto& face = *reinterpret_cast<const EmulatedDevice*>(context_);
    memory.fd = face.export_memory(face.self, memory.address);
    if (memory.fd >= 0) return memory;
    rte_errno = -memory.fd;
    return fail(ErrorCode::kSystem, error_text("its memory cannot be shared"));
  }
  auto handle = cuda_->export_memory(memory.address);
  if (!handle) {
    return fail(handle.error().code, fmt::format("GPU {}: its memory could not be shared: {}",
                                                 options_.device, handle.error().message));
  }
  memory.cuda = CudaExport{cuda_->uuid(), *handle};
  return memory;
}

Result<SharedReadyEvent> GpuDevice::make_ready_event() {
  if (cuda_ == nullptr) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("GPU {}: the memory of clients is not on a CUDA device, so no CUDA "
                            "stream can order access to it",
                            options_.device));
  }
  auto event = cuda_->make_event();
  if (!event) return tl::unexpected(event.error());
  auto handle = (*event)->handle();
  if (!handle) return tl::unexpected(handle.error());
  return SharedReadyEvent{std::make_unique<CudaReadyEvent>(std::move(*event)), *handle};
}

void GpuDevice::free(std::byte* memory) noexcept {
  const Quiet quiet(*this);
  rte_gpu_mem_free(id_, memory);
}

Result<std::byte*> GpuDevice::map_for_cpu(std::byte* memory, std::size_t bytes) {
  void* mapped = rte_gpu_mem_cpu_map(id_, bytes, memory);
  if (mapped == nullptr) {
    return fail(ErrorCode::kResourceExhausted,
                error_text(fmt::format("{} bytes of its memory cannot be mapped", bytes)));
  }
  return static_cast<std::byte*>(mapped);
}

void GpuDevice::unmap_for_cpu(std::byte* memory) noexcept { rte_gpu_mem_cpu_unmap(id_, memory); }

Result<std::unique_ptr<Executor>> GpuDevice::make_executor(const QueueMemory& memory) {
  ExecutorOptions options;
  options.mode = options_.kernel;
  options.persistent_sms = options_.persistent_sms;
  options.context = context_;
  options.processors = processors_;
  const Quiet quiet(*this);
  return emulated_ ? make_emulated_executor(memory, options) : make_cuda_executor(memory, options);
}

void GpuDevice::remove(GpuQueue& queue) noexcept { std::erase(queues_, &queue); }

bool GpuDevice::write_barrier() noexcept { return rte_gpu_wmb(id_) == 0; }

}  // namespace gradwire::reduce
