// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A reference plug-in over kernel TCP sockets: it does what NCCL's own socket transport does with
/// helper threads, and is the baseline that libnccl-net-gradwire.so is measured against. The player
/// is tested with it. Here are the tables: net of versions 8
/// and 12, CollNet of 7 and 12, which leave out all-gather and reduce-scatter; connect.h,
/// channel.h and collnet.h have the work.
#include <cstring>
#include <memory>

#include "nccl/sockets/channel.h"
#include "nccl/sockets/collnet.h"
#include "nccl/sockets/connect.h"
#include "nccl/sockets/settings.h"
#include "nccl_net/abi.h"

namespace gradwire::nccl {
namespace {

using namespace nccl_net;

char g_device[] = "sockets0";
constexpr int kSpeedMbps = 10'000;
constexpr int kCommsMax = 65'536;
constexpr std::size_t kRanksMax = 1024;  ///< of CollNet

Status one_device(int* count) {
  *count = 1;
  return kSuccess;
}

template <class Properties>
Status describe(int device, Properties* properties) {
  if (device != 0) return kInvalidArgument;
  *properties = Properties{};
  properties->name = g_device;
  properties->pointers = kPointerHost;
  properties->speed_mbps = kSpeedMbps;
  properties->comms_max = kCommsMax;
  properties->receives_max = settings().receives;
  return kSuccess;
}

Status describe_v12(int device, PropertiesV12* properties) {
  const Status status = describe(device, properties);
  if (status != kSuccess) return status;
  properties->parts.count = 1;
  properties->parts.devices[0] = device;
  properties->message_bytes = kMessageBytesMaxV8;
  properties->reduce_bytes = kMessageBytesMaxV8 / 2;
  properties->multi_request_max = 1;
  return kSuccess;
}

Status start(Logger logger) {
  set_logger(logger);
  settings();
  return kSuccess;
}

Status open_listener(int device, std::size_t connections, void* handle, void** listen_comm) {
  if (device != 0) return kInvalidArgument;
  Handle own;
  std::unique_ptr<Listener> listener = Listener::open(own, connections);
  if (listener == nullptr) return kSystemError;
  std::memcpy(handle, &own, sizeof(own));
  *listen_comm = listener.release();
  return kSuccess;
}
Status listen_at(int device, void* handle, void** listen_comm) {
  const auto data = static_cast<std::size_t>(settings().connections);
  return open_listener(device, data + 1, handle, listen_comm);
}

Status connect_to(int device, void* handle, void** send_comm, DeviceHandle** device_comm) {
  if (device != 0) return kInvalidArgument;
  if (device_comm != nullptr) *device_comm = nullptr;
  *send_comm = nullptr;
  Handle own;
  std::memcpy(&own, handle, sizeof(own));
  std::unique_ptr<Channel> channel;
  const Status status = connect_channel(own, &channel);
  std::memcpy(handle, &own, sizeof(own));
  *send_comm = channel.release();
  return status;
}

Status accept_from(void* listen_comm, void** recv_comm, DeviceHandle** device_comm) {
  if (device_comm != nullptr) *device_comm = nullptr;
  std::unique_ptr<Channel> channel;
  const Status status = static_cast<Listener*>(listen_comm)->accept(&channel);
  *recv_comm = channel.release();
  return status;
}

Status reg_mr(void*, void*, std::size_t, int pointer, void** mr) {
  *mr = nullptr;
  return pointer == kPointerHost ? kSuccess : kInternalError;
}
Status reg_mr_dmabuf(void*, void*, std::size_t, int, std::uint64_t, int, void**) {
  return kInternalError;
}
Status dereg_mr(void*, void*) { return kSuccess; }

Status isend(void* send_comm, void* data, std::size_t bytes, int tag, void*, void*,
             void** request) {
  return static_cast<Channel*>(send_comm)->post(1, &data, &bytes, &tag, request);
}
Status isend_v8(void* send_comm, void* data, int bytes, int tag, void* mr, void** request) {
  return isend(send_comm, data, static_cast<std::size_t>(bytes), tag, mr, nullptr, request);
}

Status irecv(void* recv_comm, int count, void** data, std::size_t* bytes, int* tags, void**, void**,
             void** request) {
  if (count < 1 || count > settings().receives) return kInternalError;
  return static_cast<Channel*>(recv_comm)->post(count, data, bytes, tags, request);
}
Status irecv_v8(void* recv_comm, int count, void** data, int* bytes, int* tags, void** mrs,
                void** request) {
  if (count < 1 || count > settings().receives) return kInternalError;
  std::size_t wide[kReceivesMax] = {};
  for (int i = 0; i < count; ++i) wide[i] = static_cast<std::size_t>(bytes[i]);
  return irecv(recv_comm, count, data, wide, tags, mrs, nullptr, request);
}

Status iflush(void*, int, void**, int*, void**, void**) { return kInternalError; }

Status test(void* request, int* done, int* sizes) {
  auto* own = static_cast<Request*>(request);
  return own->channel->test(*own, done, sizes);
}

Status close_channel(void* comm) {
  delete static_cast<Channel*>(comm);
  return kSuccess;
}
Status close_listener(void* listen_comm) {
  delete static_cast<Listener*>(listen_comm);
  return kSuccess;
}

Status start_v12(void** context, std::uint64_t, CommConfig*, Logger logger, Profiler) {
  *context = g_device;
  return start(logger);
}
Status listen_v12(void*, int device, void* handle, void** listen_comm) {
  return listen_at(device, handle, listen_comm);
}
Status connect_v12(void*, int device, void* handle, void** send_comm, DeviceHandle** device_comm) {
  return connect_to(device, handle, send_comm, device_comm);
}
Status finalize(void*) { return kSuccess; }

// ---- CollNet ----

Status start_collnet_v12(void** context, std::uint64_t, Logger logger) {
  *context = g_device;
  return start(logger);
}
Status listen_for_star(int device, void* handle, void** listen_comm) {
  return open_listener(device, kRanksMax, handle, listen_comm);
}
Status listen_for_star_v12(void*, int device, void* handle, void** listen_comm) {
  return listen_for_star(device, handle, listen_comm);
}
Status join(void* handles[], int nranks, int rank, void* listen_comm, void** coll_comm) {
  *coll_comm = nullptr;
  if (listen_comm == nullptr) return kInvalidArgument;  // NCCL asks again after a failure
  std::unique_ptr<Star> star =
      Star::join(handles, nranks, rank, *static_cast<Listener*>(listen_comm));
  if (star == nullptr) return kRemoteError;
  *coll_comm = star.release();
  return kSuccess;
}
Status supported(DataType datatype, RedOp redop, int* yes) {
  *yes = Star::supports(datatype, redop) ? 1 : 0;
  return kSuccess;
}
Status iallreduce(void* coll_comm, void* input, void* output, std::size_t count, DataType datatype,
                  RedOp redop, void*, void*, void** request) {
  return static_cast<Star*>(coll_comm)->post({input, output, count, datatype, redop}, request);
}
Status reg_mr_v7(void* coll_comm, void* data, int bytes, int pointer, void** mr) {
  return reg_mr(coll_comm, data, static_cast<std::size_t>(bytes), pointer, mr);
}
Status iallreduce_v7(void* coll_comm, void* input, void* output, int count, DataType datatype,
                     RedOp redop, void* input_mr, void* output_mr, void** request) {
  return iallreduce(coll_comm, input, output, static_cast<std::size_t>(count), datatype, redop,
                    input_mr, output_mr, request);
}
Status collnet_iflush(void*, void*, int, void*, void**) { return kInternalError; }
Status collnet_test(void* request, int* done, int* bytes) {
  return Star::test(request, done, bytes);
}
Status close_star(void* coll_comm) {
  delete static_cast<Star*>(coll_comm);
  return kSuccess;
}

}  // namespace
}  // namespace gradwire::nccl

#define EXPORTED __attribute__((visibility("default")))
namespace ours = gradwire::nccl;

extern "C" {
EXPORTED gradwire::nccl_net::NetV8 ncclNetPlugin_v8 = {"Sockets",
                                                       ours::start,
                                                       ours::one_device,
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
                                                       ours::close_channel,
                                                       ours::close_channel,
                                                       ours::close_listener,
                                                       nullptr,
                                                       nullptr};

EXPORTED gradwire::nccl_net::NetV12 ncclNetPlugin_v12 = {"Sockets",
                                                         ours::start_v12,
                                                         ours::one_device,
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
                                                         ours::close_channel,
                                                         ours::close_channel,
                                                         ours::close_listener,
                                                         nullptr,
                                                         nullptr,
                                                         nullptr,
                                                         ours::finalize,
                                                         nullptr};

EXPORTED gradwire::nccl_net::CollNetV7 ncclCollNetPlugin_v7 = {
    "Sockets",          ours::start,           ours::one_device,
    ours::describe,     ours::listen_for_star, ours::join,
    ours::supported,    ours::reg_mr_v7,       ours::reg_mr_dmabuf,
    ours::dereg_mr,     ours::iallreduce_v7,   ours::collnet_iflush,
    ours::collnet_test, ours::close_star,      ours::close_listener};

EXPORTED gradwire::nccl_net::CollNetV12 ncclCollNetPlugin_v12 = {"Sockets",
                                                                 ours::start_collnet_v12,
                                                                 ours::one_device,
                                                                 ours::describe_v12,
                                                                 ours::listen_for_star_v12,
                                                                 ours::join,
                                                                 ours::supported,
                                                                 ours::reg_mr,
                                                                 ours::reg_mr_dmabuf,
                                                                 ours::dereg_mr,
                                                                 ours::iallreduce,
                                                                 nullptr,
                                                                 nullptr,
                                                                 ours::collnet_iflush,
                                                                 ours::collnet_test,
                                                                 ours::close_star,
                                                                 ours::close_listener,
                                                                 nullptr,
                                                                 ours::finalize};
}
