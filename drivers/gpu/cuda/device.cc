// SPDX-License-Identifier: BSD-3-Clause
#include "device.h"

#include <rte_log.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <fstream>

namespace gradwire::gpu_cuda {
namespace {

int numa_node_of(std::string bus_id) {
  std::ranges::transform(bus_id, bus_id.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream file("/sys/bus/pci/devices/" + bus_id + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

}  // namespace

std::unique_ptr<Device> Device::open(const CudaApi& api, CuDevice device, std::string name) {
  std::unique_ptr<Device> made(new Device(api, device, std::move(name)));
  if (!made->retain()) return nullptr;
  made->read_facts();
  std::string why;
  made->gdrcopy_ = Gdrcopy::open(why);
  if (made->gdrcopy_ == nullptr) {
    log(RTE_LOG_INFO, made->name_ + ": GPU memory is not mapped for the CPU: " + why);
  }
  return made;
}

Device::Device(const CudaApi& api, CuDevice device, std::string name)
    : api_(api),
      device_(device),
      name_(std::move(name)),
      registry_(
          [this](std::uintptr_t begin, std::size_t bytes) {
            auto* address = reinterpret_cast<void*>(begin);
            const CuResult result =
                api_.host_register(address, bytes, kHostRegisterPortable | kHostRegisterDeviceMap);
            if (result != kCuSuccess) return told("cuMemHostRegister", result);
            // Kernels are given the host's addresses as they are.
            CuDevicePtr mapped = 0;
            const CuResult got = api_.host_get_device_pointer(&mapped, address, 0);
            if (got == kCuSuccess && mapped == begin) return 0;
            api_.host_unregister(address);
            if (got != kCuSuccess) return told("cuMemHostGetDevicePointer", got);
            log(RTE_LOG_ERR, name_ + ": the GPU sees host memory at other addresses than the CPU");
            return -ENOTSUP;
          },
          [this](std::uintptr_t begin) {
            return told("cuMemHostUnregister",
                        api_.host_unregister(reinterpret_cast<void*>(begin)));
          }) {}

bool Device::retain() {
  const CuResult result = api_.primary_context_retain(&context_, device_);
  if (result != kCuSuccess) context_ = nullptr;
  return told("cuDevicePrimaryCtxRetain", result) == 0;
}

void Device::read_facts() {
  std::array<char, 256> text{};
  if (told("cuDeviceGetName", api_.device_get_name(text.data(), text.size(), device_)) == 0) {
    facts_.model = text.data();
  }
  text.fill(0);
  if (told("cuDeviceGetPCIBusId", api_.device_get_pci_bus_id(text.data(), text.size(), device_)) ==
      0) {
    facts_.bus_id = text.data();
    facts_.numa_node = numa_node_of(facts_.bus_id);
  }
  static_cast<void>(told("cuDeviceTotalMem", api_.device_total_mem(&facts_.memory_bytes, device_)));
  const auto attribute = [this](int which) {
    int value = 0;
    const int failed =
        told("cuDeviceGetAttribute", api_.device_get_attribute(&value, which, device_));
    return failed == 0 ? value : 0;
  };
  facts_.multiprocessors = static_cast<std::uint32_t>(attribute(kAttributeMultiprocessorCount));
  needs_flush_ = attribute(kAttributeRdmaWritesOrdering) == kWritesOrderingNone;
  can_flush_ = (attribute(kAttributeRdmaFlushOptions) & kFlushOptionHost) != 0;
}

Device::~Device() {
  if (context_ == nullptr) return;
  {
    const CurrentContext current(api_, context_);
    for (auto& [address, allocation] : allocations_) {
      if (allocation.mapping != nullptr) gdrcopy_->unmap(*allocation.mapping);
      static_cast<void>(told("cuMemFree", api_.mem_free(allocation.base)));
    }
    registry_.clear();
  }
  static_cast<void>(told("cuDevicePrimaryCtxRelease", api_.primary_context_release(device_)));
}

int Device::told(const char* call, CuResult result) const {
  if (result != kCuSuccess) {
    log(RTE_LOG_ERR, name_ + ": " + call + ": " + describe(api_, result));
  }
  return to_errno(result);
}

int Device::allocate(std::size_t size, unsigned align, void*& address) {
  const CurrentContext current(api_, context_);
  if (const int failed = told("cuCtxPushCurrent", current.result()); failed != 0) return failed;
  // cuMemAlloc aligns to 256 bytes at least.
  const std::size_t extra = align > 256 ? align : 0;
  if (size > SIZE_MAX - extra || size + extra > facts_.memory_bytes) return -E2BIG;
  Allocation made;
  made.bytes = size;
  if (const int failed = told("cuMemAlloc", api_.mem_alloc(&made.base, size + extra));
      failed != 0) {
    return failed;
  }
  const CuDevicePtr aligned = align > 256 ? (made.base + align - 1) / align * align : made.base;
  // Zeroed: the class library does not initialize the first item of a communication list.
  int failed = told("cuMemsetD8", api_.memset_d8(aligned, 0, size));
  if (failed == 0) failed = told("cuCtxSynchronize", api_.context_synchronize());
  if (failed != 0) {
    static_cast<void>(told("cuMemFree", api_.mem_free(made.base)));
    return failed;
  }
  allocations_.emplace(static_cast<std::uintptr_t>(aligned), std::move(made));
  address = reinterpret_cast<void*>(static_cast<std::uintptr_t>(aligned));
  return 0;
}

int Device::free(void* address) {
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations_.end()) return -EINVAL;
  const CurrentContext current(api_, context_);
  if (const int failed = told("cuCtxPushCurrent", current.result()); failed != 0) return failed;
  if (found->second.mapping != nullptr) gdrcopy_->unmap(*found->second.mapping);
  const int failed = told("cuMemFree", api_.mem_free(found->second.base));
  if (failed == 0) allocations_.erase(found);
  return failed;
}

int Device::register_host(std::size_t size, void* address) {
  const CurrentContext current(api_, context_);
  if (const int failed = told("cuCtxPushCurrent", current.result()); failed != 0) return failed;
  return registry_.add(reinterpret_cast<std::uintptr_t>(address), size);
}

int Device::unregister_host(void* address) {
  const CurrentContext current(api_, context_);
  if (const int failed = told("cuCtxPushCurrent", current.result()); failed != 0) return failed;
  return registry_.remove(reinterpret_cast<std::uintptr_t>(address));
}

int Device::cpu_map(std::size_t size, void* address, void*& mapped) {
  if (gdrcopy_ == nullptr) return -ENOTSUP;
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations_.end() || size > found->second.bytes) return -EINVAL;
  if (found->second.mapping != nullptr) return -EBUSY;
  const CurrentContext current(api_, context_);
  if (const int failed = told("cuCtxPushCurrent", current.result()); failed != 0) return failed;
  // Memory that others read and write too: the copy must be complete when it returns.
  const unsigned on = 1;
  if (const int failed =
          told("cuPointerSetAttribute",
               api_.pointer_set_attribute(&on, kPointerAttributeSyncMemops, found->second.base));
      failed != 0) {
    return failed;
  }
  auto mapping = std::make_unique<GdrMapping>();
  if (const int failed = gdrcopy_->map(found->first, found->second.bytes, *mapping); failed != 0) {
    log(RTE_LOG_ERR, name_ + ": GDRCopy cannot map " + std::to_string(size) + " bytes");
    return failed;
  }
  mapped = mapping->address;
  found->second.mapping = std::move(mapping);
  return 0;
}

int Device::cpu_unmap(void* address) {
  const auto found = allocations_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == allocations_.end() || found->second.mapping == nullptr) return -EINVAL;
  const int failed = gdrcopy_->unmap(*found->second.mapping);
  found->second.mapping.reset();
  return failed;
}

int Device::write_barrier() {
  // First the CPU's own write-combining buffers are emptied.
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
  if (!needs_flush_) return 0;
  if (!can_flush_) return -ENOTSUP;
  const CurrentContext current(api_, context_);
  if (const int failed = told("cuCtxPushCurrent", current.result()); failed != 0) return failed;
  return told("cuFlushGPUDirectRDMAWrites",
              api_.flush_rdma_writes(kFlushTargetCurrentContext, kFlushToAllDevices));
}

}  // namespace gradwire::gpu_cuda
