// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The driver gpu_cuda: DPDK's gpudev API on NVIDIA GPUs (device.h). A GPU is found by PCI vendor
/// and class, whatever its device id, or made as a vdev by CUDA's ordinal:
///   --vdev gpu_cuda0,id=0
/// The class library calls it from the control thread; nothing here is on a hot path.
#include <bus_pci_driver.h>
#include <bus_vdev_driver.h>
#include <gpudev_driver.h>
#include <rte_errno.h>
#include <rte_kvargs.h>
#include <rte_log.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>
#include <string_view>

#include "device.h"

namespace {

using gradwire::gpu::CudaApi;
using gradwire::gpu::CuDevice;
using gradwire::gpu_cuda::Device;
using gradwire::gpu_cuda::log;

RTE_LOG_REGISTER(gpu_cuda_logtype, pmd.gpu.cuda, NOTICE);

constexpr std::uint16_t kNvidiaVendor = 0x10de;
// Base class display: VGA controllers, and 3D controllers, which are GPUs without outputs.
constexpr std::uint32_t kVgaClass = 0x030000;
constexpr std::uint32_t k3dClass = 0x030200;

Device& device_of(rte_gpu* gpu) { return *static_cast<Device*>(gpu->process_private); }

/// For most calls the class library returns EPERM whatever the error was; the log has the error.
int told(rte_gpu* gpu, const char* call, int result) {
  if (result != 0) {
    log(RTE_LOG_ERR,
        std::string(gpu->mpshared->name) + ": " + call + ": " + std::strerror(-result));
  }
  return result;
}

int mem_alloc(rte_gpu* gpu, std::size_t size, unsigned int align, void** out) {
  return told(gpu, "mem_alloc", device_of(gpu).allocate(size, align, *out));
}
int mem_free(rte_gpu* gpu, void* address) {
  return told(gpu, "mem_free", device_of(gpu).free(address));
}
int mem_register(rte_gpu* gpu, std::size_t size, void* address) {
  return told(gpu, "mem_register", device_of(gpu).register_host(size, address));
}
int mem_unregister(rte_gpu* gpu, void* address) {
  return told(gpu, "mem_unregister", device_of(gpu).unregister_host(address));
}
int mem_cpu_map(rte_gpu* gpu, std::size_t size, void* address, void** out) {
  return told(gpu, "mem_cpu_map", device_of(gpu).cpu_map(size, address, *out));
}
int mem_cpu_unmap(rte_gpu* gpu, void* address) {
  return told(gpu, "mem_cpu_unmap", device_of(gpu).cpu_unmap(address));
}
int wmb(rte_gpu* gpu) { return told(gpu, "wmb", device_of(gpu).write_barrier()); }

int dev_close(rte_gpu* gpu) {
  auto* device = static_cast<Device*>(gpu->process_private);
  if (device == nullptr) return 0;
  const bool clean = device->allocations() + device->registrations() == 0;
  log(clean ? RTE_LOG_NOTICE : RTE_LOG_WARNING,
      std::string(gpu->mpshared->name) + ": closed: " + std::to_string(device->allocations()) +
          " allocations and " + std::to_string(device->registrations()) + " registrations left");
  gpu->process_private = nullptr;
  gpu->mpshared->info.context = 0;
  delete device;
  return 0;
}

int attach(const char* name, rte_device& parent, const CudaApi& api, CuDevice ordinal) {
  rte_gpu* gpu = rte_gpu_allocate(name);
  if (gpu == nullptr) return -rte_errno;
  std::unique_ptr<Device> device;
  try {
    device = Device::open(api, ordinal, name);
  } catch (const std::exception& error) {
    log(RTE_LOG_ERR, std::string(name) + ": " + error.what());
  }
  if (device == nullptr) {
    rte_gpu_release(gpu);
    return -EIO;
  }
  gpu->device = &parent;
  rte_gpu_info& info = gpu->mpshared->info;
  info.context = reinterpret_cast<std::uint64_t>(device->context());
  info.processor_count = device->facts().multiprocessors;
  info.total_memory = device->facts().memory_bytes;
  info.page_size = 64 * 1024;
  info.numa_node = static_cast<std::int16_t>(device->facts().numa_node);
  gpu->ops.dev_close = dev_close;
  gpu->ops.mem_alloc = mem_alloc;
  gpu->ops.mem_free = mem_free;
  gpu->ops.mem_register = mem_register;
  gpu->ops.mem_unregister = mem_unregister;
  // Without this function the class library returns ENOTSUP; any error of it would become EPERM.
  gpu->ops.mem_cpu_map = device->can_map() ? mem_cpu_map : nullptr;
  gpu->ops.mem_cpu_unmap = device->can_map() ? mem_cpu_unmap : nullptr;
  gpu->ops.wmb = wmb;
  log(RTE_LOG_NOTICE,
      std::string(name) + ": " + device->facts().model + " at " + device->facts().bus_id);
  gpu->process_private = device.release();
  rte_gpu_complete_new(gpu);
  return 0;
}

int close_by_name(const char* name) {
  rte_gpu* gpu = rte_gpu_get_by_name(name);
  // rte_gpu_close() may have been called before.
  return gpu == nullptr ? 0 : rte_gpu_close(gpu->mpshared->info.dev_id);
}

bool is_primary(const char* name) {
  if (rte_eal_process_type() == RTE_PROC_PRIMARY) return true;
  log(RTE_LOG_ERR, std::string(name) + ": a CUDA context is the primary process's alone");
  return false;
}

int probe_pci(rte_pci_driver* /*driver*/, rte_pci_device* pci) {
  if (!is_primary(pci->device.name)) return -ENOTSUP;
  constexpr int kNotMine = 1;  // the EAL goes on, and starts without the device
  std::string why;
  const CudaApi* api = gradwire::gpu::load_cuda(why);
  if (api == nullptr) {
    log(RTE_LOG_WARNING, std::string(pci->device.name) + ": left alone: " + why);
    return kNotMine;
  }
  CuDevice ordinal = 0;
  const auto result = api->device_get_by_pci_bus_id(&ordinal, pci->device.name);
  if (result != gradwire::gpu::kCuSuccess) {
    log(RTE_LOG_WARNING, std::string(pci->device.name) +
                             ": left alone: cuDeviceGetByPCIBusId: " + describe(*api, result));
    return kNotMine;
  }
  return attach(pci->device.name, pci->device, *api, ordinal);
}

int remove_pci(rte_pci_device* pci) { return close_by_name(pci->device.name); }

int take_id(const char* /*key*/, const char* value, void* out) {
  const std::string_view text = value == nullptr ? "" : value;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), *static_cast<int*>(out));
  const bool fine =
      error == std::errc() && end == text.data() + text.size() && *static_cast<int*>(out) >= 0;
  return fine ? 0 : -EINVAL;
}

/// id=N: CUDA's ordinal, 0 if it is not given.
int parse_id(const char* name, const char* text, int& ordinal) {
  ordinal = 0;
  if (text == nullptr || *text == '\0') return 0;
  static const char* const kNames[] = {"id", nullptr};
  rte_kvargs* arguments = rte_kvargs_parse(text, kNames);
  int result = -EINVAL;
  if (arguments != nullptr) result = rte_kvargs_process(arguments, "id", take_id, &ordinal);
  rte_kvargs_free(arguments);
  if (result >= 0) return 0;
  log(RTE_LOG_ERR, std::string(name) + ": '" + text + "' must be id=N, N being CUDA's ordinal");
  return -EINVAL;
}

int probe_vdev(rte_vdev_device* vdev) {
  const char* name = rte_vdev_device_name(vdev);
  if (!is_primary(name)) return -ENOTSUP;
  int ordinal = 0;
  if (const int bad = parse_id(name, rte_vdev_device_args(vdev), ordinal); bad != 0) return bad;
  std::string why;
  const CudaApi* api = gradwire::gpu::load_cuda(why);
  if (api == nullptr) {
    log(RTE_LOG_ERR, std::string(name) + ": " + why);
    return -ENODEV;
  }
  CuDevice device = 0;
  const auto result = api->device_get(&device, ordinal);
  if (result != gradwire::gpu::kCuSuccess) {
    int count = 0;
    api->device_get_count(&count);
    log(RTE_LOG_ERR, std::string(name) + ": CUDA has no device " + std::to_string(ordinal) +
                         " (it has " + std::to_string(count) + "): " + describe(*api, result));
    return -ENODEV;
  }
  return attach(name, vdev->device, *api, device);
}

int remove_vdev(rte_vdev_device* vdev) { return close_by_name(rte_vdev_device_name(vdev)); }

constexpr rte_pci_id nvidia_class(std::uint32_t class_id) {
  rte_pci_id id{};
  id.class_id = class_id;
  id.vendor_id = kNvidiaVendor;
  id.device_id = RTE_PCI_ANY_ID;
  id.subsystem_vendor_id = RTE_PCI_ANY_ID;
  id.subsystem_device_id = RTE_PCI_ANY_ID;
  return id;
}

constexpr rte_pci_id kPciIds[] = {nvidia_class(kVgaClass), nvidia_class(k3dClass), rte_pci_id{}};

// Constant-initialized: the registrations below run as early as dynamic initialization would.
constinit rte_pci_driver gpu_cuda_pci = [] {
  rte_pci_driver driver{};
  driver.probe = probe_pci;
  driver.remove = remove_pci;
  driver.id_table = kPciIds;
  driver.drv_flags = RTE_PCI_DRV_WC_ACTIVATE;
  return driver;
}();

constinit rte_vdev_driver gpu_cuda_vdev = [] {
  rte_vdev_driver driver{};
  driver.probe = probe_vdev;
  driver.remove = remove_vdev;
  return driver;
}();

}  // namespace

namespace gradwire::gpu_cuda {

void log(std::uint32_t level, const std::string& text) {
  rte_log(level, static_cast<std::uint32_t>(gpu_cuda_logtype), "%s\n", text.c_str());
}

}  // namespace gradwire::gpu_cuda

RTE_PMD_REGISTER_PCI(gpu_cuda_pci, gpu_cuda_pci);
RTE_PMD_REGISTER_KMOD_DEP(gpu_cuda_pci, "* nvidia");
RTE_PMD_REGISTER_VDEV(gpu_cuda, gpu_cuda_vdev);
RTE_PMD_REGISTER_PARAM_STRING(gpu_cuda, "id=<int>");
