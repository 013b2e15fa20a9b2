// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// libnccl-net-gradwire.so: the tables that NCCL looks for, net of versions 8 and 12. engine.h and
/// link.h have the work. No exception leaves a function here, and none of isend(), irecv() and
/// test() waits. One device stands for the daemon that GRADWIRE_SOCKET names.
#include <climits>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>

#include "nccl_net/abi.h"
#include "nccl_net/daemon.h"
#include "nccl_net/engine.h"
#include "nccl_net/log.h"

namespace gradwire::nccl_net {
namespace {

/// Connections of a device: as many as a link numbers, and more than anybody has had.
constexpr int kConnectionsMax = 65'536;

/// What `call` comes to. What it throws is memory or threads that are not to be had.
template <class Function>
Status guarded(const char* what, Function&& call) noexcept {
  try {
    return call();
  } catch (const std::exception& error) {
    warn("%s: %s", what, error.what());
    return kSystemError;
  }
}

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

Status describe_v12(int number, PropertiesV12* properties) {
  const Status status = describe(number, properties);
  if (status != kSuccess) return status;
  properties->parts.count = 1;
  properties->parts.devices[0] = number;
  properties->message_bytes = kMessageBytesMaxV8;
  properties->multi_request_max = 1;
  return kSuccess;
}

Status listen_at(int number, void* handle, void** listen_comm) {
  *listen_comm = nullptr;
  if (number != 0) return kInvalidArgument;
  return guarded("listen", [&] {
    Handle own;
    Listener* listener = nullptr;
    const Status status = Engine::get().listen(own, &listener);
    std::memset(handle, 0, kHandleBytes);
    std::memcpy(handle, &own, sizeof(own));
    *listen_comm = listener;
    return status;
  });
}

Status connect_to(int number, void* handle, void** send_comm, DeviceHandle** device_comm) {
  *send_comm = nullptr;
  if (device_comm != nullptr) *device_comm = nullptr;
  if (number != 0) return kInvalidArgument;
  return guarded("connect", [&] {
    Handle own;
    std::memcpy(&own, handle, sizeof(own));
    Connection* connection = nullptr;
    const Status status = Engine::get().connect(own, &connection);
    std::memcpy(handle, &own, sizeof(own));
    *send_comm = connection;
    return status;
  });
}

Status accept_from(void* listen_comm, void** recv_comm, DeviceHandle** device_comm) {
  *recv_comm = nullptr;
  if (device_comm != nullptr) *device_comm = nullptr;
  return guarded("accept", [&] {
    Connection* connection = nullptr;
    const Status status = Engine::get().accept(*static_cast<Listener*>(listen_comm), &connection);
    *recv_comm = connection;
    return status;
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

/// The connection's link works no more. @return whether it says so.
bool is_broken(Connection& connection) {
  if (connection.link->state() != Link::State::kFailed) return false;
  if (!connection.warned) {
    connection.warned = true;
    warn("a connection has failed: %s", connection.link->why().c_str());
  }
  return true;
}

Status post(void* comm, void* data, std::size_t bytes, bool sends, void** request) {
  *request = nullptr;
  auto& connection = *static_cast<Connection*>(comm);
  if (connection.sends != sends) return kInvalidArgument;
  return guarded(sends ? "isend" : "irecv", [&] {
    const std::unique_lock lock(Engine::get().mutex, std::try_to_lock);
    if (!lock.owns_lock()) return kSuccess;
    Link& link = *connection.link;
    if (is_broken(connection)) return kRemoteError;
    if (sends && connection.peer_closed) {
      warn("the other end has closed the connection");
      return kRemoteError;
    }
    Request* posted = sends ? link.post_send(connection, data, bytes)
                            : link.post_receive(connection, data, bytes);
    link.progress(&connection);
    *request = posted;
    return kSuccess;
  });
}

Status isend(void* send_comm, void* data, std::size_t bytes, int, void*, void*, void** request) {
  *request = nullptr;
  if (bytes > kMessageBytesMaxV8) {
    warn("a message of %zu bytes: at most %zu", bytes, kMessageBytesMaxV8);
    return kInvalidArgument;
  }
  return post(send_comm, data, bytes, true, request);
}
Status isend_v8(void* send_comm, void* data, int bytes, int tag, void* mr, void** request) {
  *request = nullptr;
  if (bytes < 0) return kInvalidArgument;
  return isend(send_comm, data, static_cast<std::size_t>(bytes), tag, mr, nullptr, request);
}

Status irecv(void* recv_comm, int count, void** data, std::size_t* bytes, int*, void**, void**,
             void** request) {
  *request = nullptr;
  if (count != 1) {
    warn("%d receives in one: only one was offered", count);
    return kInvalidArgument;
  }
  return post(recv_comm, data[0], bytes[0], false, request);
}
Status irecv_v8(void* recv_comm, int count, void** data, int* bytes, int* tags, void** mrs,
                void** request) {
  std::size_t wide = count == 1 && bytes[0] > 0 ? static_cast<std::size_t>(bytes[0]) : 0;
  return irecv(recv_comm, count, data, &wide, tags, mrs, nullptr, request);
}

Status iflush(void*, int, void**, int*, void**, void** request) {
  *request = nullptr;
  return kSuccess;  // there is nothing to flush in memory of the host
}

Status test(void* opaque, int* done, int* sizes) {
  *done = 0;
  auto& request = *static_cast<Request*>(opaque);
  return guarded("test", [&]() -> Status {
    Connection& connection = *request.connection;
    if (request.state == Request::kPosted) {
      const std::unique_lock lock(Engine::get().mutex, std::try_to_lock);
      if (!lock.owns_lock()) return kSuccess;
      connection.link->progress(&connection);
      if (request.state == Request::kPosted) {
        return is_broken(connection) ? kRemoteError : kSuccess;
      }
    }
    if (request.state == Request::kFailed) {
      warn("a message does not come: the other end has closed the connection");
      return kRemoteError;
    }
    *done = 1;
    if (sizes != nullptr) sizes[0] = static_cast<int>(request.bytes);
    request.state = Request::kFree;
    return kSuccess;
  });
}

Status close_connection(void* comm) {
  return guarded("close", [&] {
    Engine::get().close(static_cast<Connection*>(comm));
    return kSuccess;
  });
}
Status close_listener(void* listen_comm) {
  return guarded("close", [&] {
    Engine::get().close(static_cast<Listener*>(listen_comm));
    return kSuccess;
  });
}

Status start_v12(void** context, std::uint64_t, CommConfig*, Logger logger, Profiler) {
  // Communicators share everything; NCCL wants some pointer.
  *context = &device_facts();
  return start(logger);
}
Status listen_v12(void*, int number, void* handle, void** listen_comm) {
  return listen_at(number, handle, listen_comm);
}
Status connect_v12(void*, int number, void* handle, void** send_comm, DeviceHandle** device_comm) {
  return connect_to(number, handle, send_comm, device_comm);
}
Status finalize(void*) { return kSuccess; }

}  // namespace
}  // namespace gradwire::nccl_net

#define EXPORTED __attribute__((visibility("default")))
namespace ours = gradwire::nccl_net;

extern "C" {
EXPORTED extern ours::NetV8 ncclNetPlugin_v8;
EXPORTED extern ours::NetV12 ncclNetPlugin_v12;

ours::NetV8 ncclNetPlugin_v8 = {"gradwire",
                                ours::start,
                                ours::devices,
                                ours::describe,
                                ours::listen_at,
                                ours::connect_to,
                                ours::accept_from,
                                ours::reg_mr,
                                ours::reg_mr_dmabuf,
                                ours::dereg_mr,
                                ours::isend_v8,
                                ours::irecv_v8,
                                ours::iflush,
                                ours::test,
                                ours::close_connection,
                                ours::close_connection,
                                ours::close_listener,
                                nullptr,
                                nullptr};

ours::NetV12 ncclNetPlugin_v12 = {"gradwire",
                                  ours::start_v12,
                                  ours::devices,
                                  ours::describe_v12,
                                  ours::listen_v12,
                                  ours::connect_v12,
                                  ours::accept_from,
                                  ours::reg_mr,
                                  ours::reg_mr_dmabuf,
                                  ours::dereg_mr,
                                  ours::isend,
                                  ours::irecv,
                                  ours::iflush,
                                  ours::test,
                                  ours::close_connection,
                                  ours::close_connection,
                                  ours::close_listener,
                                  nullptr,
                                  nullptr,
                                  nullptr,
                                  ours::finalize,
                                  nullptr};
}
