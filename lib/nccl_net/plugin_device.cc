// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/plugin_device.h"

#include <cstring>
#include <mutex>
#include <string>

#include "nccl_net/daemon.h"
#include "nccl_net/engine.h"

namespace gradwire::nccl_net {
namespace {

/// Connections of a device: as many as a link numbers, and more than anybody has had.
constexpr int kConnectionsMax = 65'536;

struct Device {
  std::mutex mutex;
  bool known = false;
  DeviceFacts facts;
};
/// Never destroyed, as NCCL keeps its strings.
Device& device_facts() {
  static Device* device = new Device;
  return *device;
}

template <class Properties>
Status describe(int number, Properties* properties) {
  Device& device = device_facts();
  const std::lock_guard lock(device.mutex);
  if (number != 0 || !device.known) return kInvalidArgument;
  *properties = Properties{};
  properties->name = device.facts.name.data();
  if (!device.facts.pci_path.empty()) properties->pci_path = device.facts.pci_path.data();
  properties->pointers = kPointerHost;
  properties->speed_mbps = device.facts.speed_mbps;
  properties->comms_max = kConnectionsMax;
  properties->receives_max = 1;
  return kSuccess;
}

}  // namespace

Status start(Logger logger) {
  set_logger(logger);
  return guarded("init", [] {
    Device& device = device_facts();
    const std::lock_guard lock(device.mutex);
    if (device.known) return kSuccess;
    std::string why;
    if (!read_facts(device.facts, why) || Engine::get().clients(why) == nullptr) {
      warn("not used: %s", why.c_str());
      return kSystemError;
    }
    device.known = true;
    inform("%s, %d Mbit/s, at %s", device.facts.name.c_str(), device.facts.speed_mbps,
           device.facts.pci_path.empty() ? "no PCI device" : device.facts.pci_path.c_str());
    return kSuccess;
  });
}

Status devices(int* count) {
  *count = 1;
  return kSuccess;
}

void* device_context() { return &device_facts(); }

Status describe_v7(int number, PropertiesV7* properties) { return describe(number, properties); }
Status describe_v8(int number, PropertiesV8* properties) { return describe(number, properties); }

Status describe_v12(int number, PropertiesV12* properties) {
  const Status status = describe(number, properties);
  if (status != kSuccess) return status;
  properties->parts.count = 1;
  properties->parts.devices[0] = number;
  properties->message_bytes = kMessageBytesMaxV8;
  properties->multi_request_max = 1;
  return kSuccess;
}

Status listen_for(bool links, int number, void* handle, void** listen_comm) {
  *listen_comm = nullptr;
  if (number != 0) return kInvalidArgument;
  return guarded("listen", [&] {
    Handle own;
    Listener* listener = nullptr;
    const Status status = Engine::get().listen(own, links, &listener);
    std::memset(handle, 0, kHandleBytes);
    std::memcpy(handle, &own, sizeof(own));
    *listen_comm = listener;
    return status;
  });
}

Status close_listener(void* listen_comm) {
  return guarded("close", [&] {
    Engine::get().close(static_cast<Listener*>(listen_comm));
    return kSuccess;
  });
}

Status reg_mr(void*, void*, std::size_t, int pointer, void** mr) {
  *mr = nullptr;
  if (pointer == kPointerHost) return kSuccess;
  warn("memory of a GPU is not taken: NCCL has to copy to host memory");
  return kInvalidUsage;
}
Status reg_mr_dmabuf(void*, void*, std::size_t, int, std::uint64_t, int, void** mr) {
  *mr = nullptr;
  warn("dma-buf memory is not taken: NCCL has to copy to host memory");
  return kInvalidUsage;
}
Status dereg_mr(void*, void*) { return kSuccess; }

Status finalize(void*) { return kSuccess; }

}  // namespace gradwire::nccl_net
