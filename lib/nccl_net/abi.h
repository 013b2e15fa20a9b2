// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What NCCL and a network plug-in of its agree on: two tables of functions that the plug-in
/// exports as data, one for transfers between two ranks (net), one for all-reduces by the network
/// (CollNet). Declared here in our words, so that nothing of NCCL's is needed to build. Facts are
/// from NCCL's src/include/plugin/net/net_v7.h, net_v8.h and net_v12.h, plugin/nccl_net.h and
/// nccl_common.h, nccl_device/net_device.h and nccl.h.in, 2.20.5 to 2.30.7; test/nccl/README.md has
/// what NCCL does with them. Layouts only: nothing here allocates or belongs to a thread.
///
/// NCCL looks for the newest version that it knows, and goes down from there: 2.20 to 2.23 know 8,
/// 2.24 and 2.25 know 9, 2.26 and 2.27 know 10, 2.28 and 2.29 know 11, 2.30 knows 12. All of them
/// take 8, and 7. CollNet of version 7 has no all-gather and no reduce-scatter: all of them go by
/// net then. Of version 8 they are called, whether they are there or not.
///
/// Enumerations cross as int: a value that we do not know must not be undefined behaviour.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradwire::nccl_net {

constexpr const char* kNetSymbolV8 = "ncclNetPlugin_v8";
constexpr const char* kNetSymbolV12 = "ncclNetPlugin_v12";
constexpr const char* kCollNetSymbolV7 = "ncclCollNetPlugin_v7";
constexpr const char* kCollNetSymbolV8 = "ncclCollNetPlugin_v8";
constexpr const char* kCollNetSymbolV12 = "ncclCollNetPlugin_v12";

/// Bytes of the handle that listen() fills. NCCL carries them to the rank that connects.
constexpr std::size_t kHandleBytes = 128;
/// Requests of one connection that are under way at a time, at most.
constexpr int kRequestsMax = 32;
/// How many chunks of one channel and direction NCCL has under way.
constexpr int kSteps = 8;
/// The largest message of a plug-in of version 8: 1 GiB. NCCL refuses more before it calls.
constexpr std::size_t kMessageBytesMaxV8 = std::size_t{1} << 30;

/// What a call came to. Anything but kSuccess ends the communicator.
using Status = int;
constexpr Status kSuccess = 0;
constexpr Status kSystemError = 2;
constexpr Status kInternalError = 3;
constexpr Status kInvalidArgument = 4;
constexpr Status kInvalidUsage = 5;
constexpr Status kRemoteError = 6;
constexpr Status kInProgress = 7;

/// Where memory is: a bit each in Properties, one of them in reg_mr().
constexpr int kPointerHost = 1;
constexpr int kPointerCuda = 2;
constexpr int kPointerDmabuf = 4;

/// No part of a transfer runs on the GPU.
constexpr int kDeviceTypeHost = 0;
constexpr int kDeviceVersionNone = 0;

/// What irecv() of version 9 and later finds in *request if NCCL does not need to be told when the
/// receive completes. Only a hint.
inline void* optional_completion() { return reinterpret_cast<void*>(std::uintptr_t{1}); }

using DataType = int;
constexpr DataType kInt8 = 0;
constexpr DataType kUint8 = 1;
constexpr DataType kInt32 = 2;
constexpr DataType kUint32 = 3;
constexpr DataType kInt64 = 4;
constexpr DataType kUint64 = 5;
constexpr DataType kFloat16 = 6;
constexpr DataType kFloat32 = 7;
constexpr DataType kFloat64 = 8;
constexpr DataType kBfloat16 = 9;
constexpr DataType kFloat8e4m3 = 10;
constexpr DataType kFloat8e5m2 = 11;
constexpr int kDataTypes = 12;

using RedOp = int;
constexpr RedOp kSum = 0;
constexpr RedOp kProd = 1;
constexpr RedOp kMax = 2;
constexpr RedOp kMin = 3;
/// NCCL asks reduce_support() for those four.
constexpr int kRedOps = 4;

constexpr int kLogWarn = 2;
constexpr int kLogInfo = 3;
constexpr int kLogTrace = 5;
/// Bits of Logger's `subsystems`, by which NCCL_DEBUG_SUBSYS chooses.
constexpr unsigned long kLogInit = 0x1;
constexpr unsigned long kLogNet = 0x10;

/// NCCL's logger. `format` is printf's; the line gets host, process and rank from NCCL.
using Logger = void (*)(int level, unsigned long subsystems, const char* file, int line,
                        const char* format, ...);
/// NCCL's profiler; a plug-in may leave it alone.
using Profiler = Status (*)(void** event, int type, void* parent, std::int64_t plugin_id,
                            void* data);

/// Only for plug-ins with a part on the GPU: ours leave it null.
struct DeviceHandle {
  int device_type = 0;
  int device_version = 0;
  void* handle = nullptr;
  std::size_t bytes = 0;
  int needs_proxy = 0;
};

// ---- Version 7, of CollNet alone ----

struct PropertiesV7 {
  char* name = nullptr;
  char* pci_path = nullptr;
  std::uint64_t guid = 0;
  int pointers = 0;
  int speed_mbps = 0;
  int port = 0;
  float latency_us = 0;
  int comms_max = 0;
  int receives_max = 0;
  int device_type = kDeviceTypeHost;
  int device_version = kDeviceVersionNone;
};

struct CollNetV7 {
  const char* name;
  Status (*init)(Logger logger);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, PropertiesV7* properties);
  Status (*listen)(int device, void* handle, void** listen_comm);
  Status (*connect)(void* handles[], int nranks, int rank, void* listen_comm, void** coll_comm);
  Status (*reduce_support)(DataType datatype, RedOp redop, int* supported);
  Status (*reg_mr)(void* coll_comm, void* data, int bytes, int pointer, void** mr);
  Status (*reg_mr_dmabuf)(void* coll_comm, void* data, std::size_t bytes, int pointer,
                          std::uint64_t offset, int fd, void** mr);
  Status (*dereg_mr)(void* coll_comm, void* mr);
  Status (*iallreduce)(void* coll_comm, void* input, void* output, int count, DataType datatype,
                       RedOp redop, void* input_mr, void* output_mr, void** request);
  Status (*iflush)(void* coll_comm, void* data, int bytes, void* mr, void** request);
  Status (*test)(void* request, int* done, int* bytes);
  Status (*close_coll)(void* coll_comm);
  Status (*close_listen)(void* listen_comm);
};

// ---- Version 8 ----

struct PropertiesV8 {
  char* name = nullptr;      ///< owned by the plug-in, for as long as it is loaded
  char* pci_path = nullptr;  ///< in /sys; null: beside the first CPU
  std::uint64_t guid = 0;    ///< alike for the functions of one NIC
  int pointers = 0;          ///< kPointerHost and others
  int registration_is_global = 0;
  int speed_mbps = 0;
  int port = 0;
  float latency_us = 0;
  int comms_max = 0;
  int receives_max = 0;  ///< of one irecv()
  int device_type = kDeviceTypeHost;
  int device_version = kDeviceVersionNone;
};

struct NetV8 {
  const char* name;
  Status (*init)(Logger logger);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, PropertiesV8* properties);
  Status (*listen)(int device, void* handle, void** listen_comm);
  Status (*connect)(int device, void* handle, void** send_comm, DeviceHandle** device_comm);
  Status (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_comm);
  Status (*reg_mr)(void* comm, void* data, std::size_t bytes, int pointer, void** mr);
  Status (*reg_mr_dmabuf)(void* comm, void* data, std::size_t bytes, int pointer,
                          std::uint64_t offset, int fd, void** mr);
  Status (*dereg_mr)(void* comm, void* mr);
  Status (*isend)(void* send_comm, void* data, int bytes, int tag, void* mr, void** request);
  Status (*irecv)(void* recv_comm, int count, void** data, int* bytes, int* tags, void** mrs,
                  void** request);
  Status (*iflush)(void* recv_comm, int count, void** data, int* bytes, void** mrs, void** request);
  /// sizes: null, or [count] of the receive, what came; of a send one number.
  Status (*test)(void* request, int* done, int* sizes);
  Status (*close_send)(void* send_comm);
  Status (*close_recv)(void* recv_comm);
  Status (*close_listen)(void* listen_comm);
  Status (*get_device_mr)(void* comm, void* mr, void** device_mr);
  Status (*irecv_consumed)(void* recv_comm, int count, void* request);
};

struct PartV8 {
  void* mr = nullptr;
  void* address = nullptr;
  std::uint32_t bytes = 0;
};

struct CollNetV8 {
  const char* name;
  Status (*init)(Logger logger);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, PropertiesV8* properties);
  Status (*listen)(int device, void* handle, void** listen_comm);
  Status (*connect)(void* handles[], int nranks, int rank, void* listen_comm, void** coll_comm);
  Status (*reduce_support)(DataType datatype, RedOp redop, int* supported);
  Status (*reg_mr)(void* coll_comm, void* data, std::size_t bytes, int pointer, void** mr);
  Status (*reg_mr_dmabuf)(void* coll_comm, void* data, std::size_t bytes, int pointer,
                          std::uint64_t offset, int fd, void** mr);
  Status (*dereg_mr)(void* coll_comm, void* mr);
  Status (*iallreduce)(void* coll_comm, void* input, void* output, int count, DataType datatype,
                       RedOp redop, void* input_mr, void* output_mr, void** request);
  Status (*iallgather)(void* coll_comm, void* input, int parts, PartV8* outputs,
                       std::size_t bytes_per_rank, std::size_t window_offset,
                       std::size_t window_bytes, void* input_mr, void** request);
  Status (*ireducescatter)(void* coll_comm, int parts, PartV8* inputs, void* output,
                           std::size_t bytes_per_rank, std::size_t window_offset,
                           std::size_t window_bytes, DataType datatype, RedOp redop,
                           void* output_mr, void** request);
  Status (*iflush)(void* coll_comm, void* data, int bytes, void* mr, void** request);
  Status (*test)(void* request, int* done, int* bytes);
  Status (*close_coll)(void* coll_comm);
  Status (*close_listen)(void* listen_comm);
};

// ---- Version 12 ----

/// Devices that are used together as one.
struct VirtualDevice {
  int count = 0;
  int devices[8] = {};
};

/// What a communicator's configuration asks for. -1: nothing.
struct CommConfig {
  int traffic_class = -1;
};

struct PropertiesV12 {
  char* name = nullptr;
  char* pci_path = nullptr;
  std::uint64_t guid = 0;
  int pointers = 0;
  int registration_is_global = 0;
  int force_flush = 0;
  int speed_mbps = 0;
  int port = 0;
  float latency_us = 0;
  int comms_max = 0;
  int receives_max = 0;
  int device_type = kDeviceTypeHost;
  int device_version = kDeviceVersionNone;
  VirtualDevice parts;            ///< of a device that is not virtual: itself
  std::size_t message_bytes = 0;  ///< the largest message
  std::size_t reduce_bytes = 0;   ///< the largest all-reduce of CollNet
  int multi_request_max = 0;
  std::int16_t rail = -1;
  std::int16_t plane = -1;
};

/// How NCCL is about to use the network. -1: not known.
struct CommAttributes {
  std::int32_t peers_max = -1;
  std::int32_t peers_min = -1;
  std::int32_t flows_max = -1;
  std::int32_t flows_min = -1;
};
struct Attributes {
  CommAttributes send;
  CommAttributes recv;
  std::uint32_t op = ~0u;
  std::uint32_t algorithm = ~0u;
  std::uint32_t protocol = ~0u;
};

struct NetV12 {
  const char* name;
  /// Once for each communicator, which gets a context of its own.
  Status (*init)(void** context, std::uint64_t comm_id, CommConfig* config, Logger logger,
                 Profiler profiler);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, PropertiesV12* properties);
  Status (*listen)(void* context, int device, void* handle, void** listen_comm);
  Status (*connect)(void* context, int device, void* handle, void** send_comm,
                    DeviceHandle** device_comm);
  Status (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** device_comm);
  Status (*reg_mr)(void* comm, void* data, std::size_t bytes, int pointer, void** mr);
  Status (*reg_mr_dmabuf)(void* comm, void* data, std::size_t bytes, int pointer,
                          std::uint64_t offset, int fd, void** mr);
  Status (*dereg_mr)(void* comm, void* mr);
  Status (*isend)(void* send_comm, void* data, std::size_t bytes, int tag, void* mr, void* parent,
                  void** request);
  Status (*irecv)(void* recv_comm, int count, void** data, std::size_t* bytes, int* tags,
                  void** mrs, void** parents, void** request);
  Status (*iflush)(void* recv_comm, int count, void** data, int* bytes, void** mrs, void** request);
  Status (*test)(void* request, int* done, int* sizes);
  Status (*close_send)(void* send_comm);
  Status (*close_recv)(void* recv_comm);
  Status (*close_listen)(void* listen_comm);
  Status (*get_device_mr)(void* comm, void* mr, void** device_mr);
  Status (*irecv_consumed)(void* recv_comm, int count, void* request);
  /// Null: devices are never put together.
  Status (*make_virtual_device)(int* device, VirtualDevice* parts);
  Status (*finalize)(void* context);
  /// Null: not told how the network will be used.
  Status (*set_attributes)(void* context, Attributes* attributes);
};

struct PartV12 {
  void* mr = nullptr;
  void* address = nullptr;
  std::size_t bytes = 0;
};

struct CollNetV12 {
  const char* name;
  Status (*init)(void** context, std::uint64_t comm_id, Logger logger);
  Status (*devices)(int* count);
  Status (*get_properties)(int device, PropertiesV12* properties);
  Status (*listen)(void* context, int device, void* handle, void** listen_comm);
  Status (*connect)(void* handles[], int nranks, int rank, void* listen_comm, void** coll_comm);
  Status (*reduce_support)(DataType datatype, RedOp redop, int* supported);
  Status (*reg_mr)(void* coll_comm, void* data, std::size_t bytes, int pointer, void** mr);
  Status (*reg_mr_dmabuf)(void* coll_comm, void* data, std::size_t bytes, int pointer,
                          std::uint64_t offset, int fd, void** mr);
  Status (*dereg_mr)(void* coll_comm, void* mr);
  Status (*iallreduce)(void* coll_comm, void* input, void* output, std::size_t count,
                       DataType datatype, RedOp redop, void* input_mr, void* output_mr,
                       void** request);
  /// Null: NCCL gathers by net.
  Status (*iallgather)(void* coll_comm, void* input, int parts, PartV12* outputs,
                       std::size_t bytes_per_rank, std::size_t window_offset,
                       std::size_t window_bytes, void* input_mr, void** request);
  Status (*ireducescatter)(void* coll_comm, int parts, PartV12* inputs, void* output,
                           std::size_t bytes_per_rank, std::size_t window_offset,
                           std::size_t window_bytes, DataType datatype, RedOp redop,
                           void* output_mr, void** request);
  Status (*iflush)(void* coll_comm, void* data, int bytes, void* mr, void** request);
  Status (*test)(void* request, int* done, int* bytes);
  Status (*close_coll)(void* coll_comm);
  Status (*close_listen)(void* listen_comm);
  Status (*make_virtual_device)(int* device, VirtualDevice* parts);
  Status (*finalize)(void* context);
};

static_assert(sizeof(PropertiesV7) == 56 && offsetof(PropertiesV7, latency_us) == 36);
static_assert(sizeof(CollNetV7) == 15 * sizeof(void*));
static_assert(sizeof(PropertiesV8) == 64 && offsetof(PropertiesV8, device_version) == 56);
static_assert(sizeof(PropertiesV12) == 128 && offsetof(PropertiesV12, message_bytes) == 104);
static_assert(sizeof(NetV8) == 19 * sizeof(void*) && sizeof(NetV12) == 22 * sizeof(void*));
static_assert(sizeof(CollNetV8) == 17 * sizeof(void*));
static_assert(sizeof(CollNetV12) == 19 * sizeof(void*));
static_assert(sizeof(PartV8) == 24 && sizeof(PartV12) == 24 && sizeof(Attributes) == 44);

}  // namespace gradwire::nccl_net
