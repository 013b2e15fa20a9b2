// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// libnccl-net-gradwire.so: the tables that NCCL looks for, net of versions 8 and 12. engine.h and
/// link.h have the work; plugin_collnet.cc has the tables of CollNet. No exception leaves a
/// function here, and none of isend(), irecv() and test() waits. One device stands for the daemon
/// that GRADWIRE_SOCKET names.
#include <cstring>
#include <mutex>

#include "nccl_net/abi.h"
#include "nccl_net/engine.h"
#include "nccl_net/log.h"
#include "nccl_net/plugin_device.h"

namespace gradwire::nccl_net {
namespace {

Status listen_at(int number, void* handle, void** listen_comm) {
  return listen_for(true, number, handle, listen_comm);
}
Status listen_v12(void*, int number, void* handle, void** listen_comm) {
  return listen_at(number, handle, listen_comm);
}

Status connect_v8(int number, void* handle, void** send_comm, DeviceHandle** device_comm) {
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
    // Nothing is sent without a receive that was posted before.
    if (connection.is_over()) {
      warn("%s", link.why_over(connection));
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
      warn("a message does not come: %s", connection.link->why_over(connection));
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
Status start_v12(void** context, std::uint64_t, CommConfig*, Logger logger, Profiler) {
  *context = device_context();
  return start(logger);
}
Status connect_v12(void*, int number, void* handle, void** send_comm, DeviceHandle** device_comm) {
  return connect_v8(number, handle, send_comm, device_comm);
}

}  // namespace
}  // namespace gradwire::nccl_net

#define EXPORTED_TABLE __attribute__((visibility("default")))
namespace ours = gradwire::nccl_net;

extern "C" {
EXPORTED_TABLE extern ours::NetV8 ncclNetPlugin_v8;
EXPORTED_TABLE extern ours::NetV12 ncclNetPlugin_v12;

ours::NetV8 ncclNetPlugin_v8 = {"gradwire",
                                ours::start,
                                ours::devices,
                                ours::describe_v8,
                                ours::listen_at,
                                ours::connect_v8,
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
