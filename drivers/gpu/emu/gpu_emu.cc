// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The vdev driver gpu_emu: DPDK's gpudev API on an emulated GPU (device.h), so that everything but
/// CUDA's own calls can run on a machine without a GPU.
///   --vdev gpu_emu0,delay_us=200,fail_every=100
/// The class library calls it from the control thread; nothing here is on a hot path.
#include <bus_vdev_driver.h>
#include <gpudev_driver.h>
#include <rte_errno.h>
#include <rte_kvargs.h>
#include <rte_log.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string_view>

#include "device.h"

namespace {

using gradwire::gpu_emu::Behaviour;
using gradwire::gpu_emu::Device;

RTE_LOG_REGISTER(gpu_emu_logtype, pmd.gpu.emu, NOTICE);

template <class... Values>
void log(std::uint32_t level, const char* format, Values... values) {
  rte_log(level, static_cast<std::uint32_t>(gpu_emu_logtype), format, values...);
}

struct Argument {
  const char* name;
  std::uint64_t max;
  void (*set)(Behaviour&, std::uint64_t);
};

constexpr Argument kArguments[] = {
    {"memory_mib", 1 << 20, [](Behaviour& b, std::uint64_t v) { b.memory_mib = v; }},
    {"sms", 1024, [](Behaviour& b, std::uint64_t v) { b.sms = static_cast<std::uint32_t>(v); }},
    {"cpu_map", 1, [](Behaviour& b, std::uint64_t v) { b.cpu_map = v != 0; }},
    {"guard", 1, [](Behaviour& b, std::uint64_t v) { b.guard = v != 0; }},
    {"delay_us", 60'000'000, [](Behaviour& b, std::uint64_t v) { b.delay_us = v; }},
    {"fail_every", 1 << 30, [](Behaviour& b, std::uint64_t v) { b.fail_every = v; }},
    {"reorder", 1024, [](Behaviour& b, std::uint64_t v) { b.reorder = v == 0 ? 1 : v; }},
    {"hang_after", 1 << 30, [](Behaviour& b, std::uint64_t v) { b.hang_after = v; }},
    {"hang_ms", 3'600'000, [](Behaviour& b, std::uint64_t v) { b.hang_ms = v; }},
};

int take_argument(const char* key, const char* value, void* out) {
  for (const Argument& argument : kArguments) {
    if (std::strcmp(argument.name, key) != 0) continue;
    const std::string_view text = value == nullptr ? "" : value;
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number > argument.max) {
      log(RTE_LOG_ERR, "gpu_emu: %s=%s must be a number from 0 to %llu\n", key, value,
          static_cast<unsigned long long>(argument.max));
      return -EINVAL;
    }
    argument.set(*static_cast<Behaviour*>(out), number);
    return 0;
  }
  return -EINVAL;
}

int parse(const char* text, Behaviour& behaviour) {
  if (text == nullptr || *text == '\0') return 0;
  const char* names[std::size(kArguments) + 1] = {};
  for (std::size_t i = 0; i < std::size(kArguments); ++i) names[i] = kArguments[i].name;
  rte_kvargs* arguments = rte_kvargs_parse(text, names);
  if (arguments == nullptr) {
    log(RTE_LOG_ERR, "gpu_emu: '%s' names an argument that it does not know\n", text);
    return -EINVAL;
  }
  const int result = rte_kvargs_process(arguments, nullptr, take_argument, &behaviour);
  rte_kvargs_free(arguments);
  return result < 0 ? -EINVAL : 0;
}

Device& device_of(rte_gpu* gpu) { return *static_cast<Device*>(gpu->process_private); }

/// For most calls the class library returns EPERM whatever the error was; the log has the error.
int told(rte_gpu* gpu, const char* call, const void* address, std::size_t bytes, int result) {
  if (result != 0) {
    log(RTE_LOG_ERR, "%s: %s(%p, %zu bytes): %s\n", gpu->mpshared->name, call, address, bytes,
        std::strerror(-result));
  }
  return result;
}

int mem_alloc(rte_gpu* gpu, std::size_t size, unsigned int align, void** out) {
  return told(gpu, "mem_alloc", nullptr, size, device_of(gpu).allocate(size, align, *out));
}

int mem_free(rte_gpu* gpu, void* address) {
  return told(gpu, "mem_free: not an allocation", address, 0, device_of(gpu).free(address));
}

int mem_register(rte_gpu* gpu, std::size_t size, void* address) {
  return told(gpu, "mem_register", address, size, device_of(gpu).register_host(size, address));
}

int mem_unregister(rte_gpu* gpu, void* address) {
  return told(gpu, "mem_unregister: not registered", address, 0,
              device_of(gpu).unregister_host(address));
}

int mem_cpu_map(rte_gpu* gpu, std::size_t size, void* address, void** out) {
  return told(gpu, "mem_cpu_map", address, size, device_of(gpu).cpu_map(size, address, *out));
}

int mem_cpu_unmap(rte_gpu* gpu, void* address) {
  return told(gpu, "mem_cpu_unmap: not mapped", address, 0, device_of(gpu).cpu_unmap(address));
}

int wmb(rte_gpu* /*gpu*/) {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  return 0;
}

int dev_close(rte_gpu* gpu) {
  auto* device = static_cast<Device*>(gpu->process_private);
  if (device == nullptr) return 0;
  const bool clean = device->allocations() + device->registrations() == 0;
  log(clean ? RTE_LOG_NOTICE : RTE_LOG_WARNING,
      "%s: closed: %zu allocations and %zu registrations left\n", gpu->mpshared->name,
      device->allocations(), device->registrations());
  gpu->process_private = nullptr;
  gpu->mpshared->info.context = 0;
  delete device;
  return 0;
}

int probe(rte_vdev_device* vdev) {
  const char* name = rte_vdev_device_name(vdev);
  if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
    log(RTE_LOG_ERR, "%s: the emulated GPU is the primary process's alone\n", name);
    return -ENOTSUP;
  }
  Behaviour behaviour;
  if (const int bad = parse(rte_vdev_device_args(vdev), behaviour); bad != 0) return bad;
  rte_gpu* gpu = rte_gpu_allocate(name);
  if (gpu == nullptr) return -rte_errno;
  try {
    gpu->process_private = new Device(behaviour);
  } catch (const std::exception& error) {
    log(RTE_LOG_ERR, "%s: %s\n", name, error.what());
    rte_gpu_release(gpu);
    return -ENOMEM;
  }
  const Device& device = device_of(gpu);
  gpu->device = &vdev->device;
  rte_gpu_info& info = gpu->mpshared->info;
  info.context = reinterpret_cast<std::uint64_t>(&device.face());
  info.processor_count = behaviour.sms;
  info.total_memory = behaviour.memory_mib << 20;
  info.page_size = 4096;
  info.numa_node = static_cast<std::int16_t>(vdev->device.numa_node);
  gpu->ops.dev_close = dev_close;
  gpu->ops.mem_alloc = mem_alloc;
  gpu->ops.mem_free = mem_free;
  gpu->ops.mem_register = mem_register;
  gpu->ops.mem_unregister = mem_unregister;
  // Without this function the class library returns ENOTSUP; any error of it would become EPERM.
  gpu->ops.mem_cpu_map = behaviour.cpu_map ? mem_cpu_map : nullptr;
  gpu->ops.mem_cpu_unmap = behaviour.cpu_map ? mem_cpu_unmap : nullptr;
  gpu->ops.wmb = wmb;
  rte_gpu_complete_new(gpu);
  return 0;
}

int remove(rte_vdev_device* vdev) {
  rte_gpu* gpu = rte_gpu_get_by_name(rte_vdev_device_name(vdev));
  // rte_gpu_close() may have been called before.
  return gpu == nullptr ? 0 : rte_gpu_close(gpu->mpshared->info.dev_id);
}

// Constant-initialized: the registration below runs as early as dynamic initialization would.
constinit rte_vdev_driver gpu_emu_driver = [] {
  rte_vdev_driver driver{};
  driver.probe = probe;
  driver.remove = remove;
  return driver;
}();

}  // namespace

RTE_PMD_REGISTER_VDEV(gpu_emu, gpu_emu_driver);
RTE_PMD_REGISTER_PARAM_STRING(gpu_emu,
                              "memory_mib=<int> sms=<int> cpu_map=<0|1> guard=<0|1> delay_us=<int> "
                              "fail_every=<int> reorder=<int> hang_after=<int> hang_ms=<int>");
