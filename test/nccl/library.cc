// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "nccl/calls.h"
#include "nccl/failure.h"

namespace gradwire::nccl {
namespace {

using namespace nccl_net;

std::atomic<int> g_verbosity{0};
std::atomic<int> g_rank{0};

void log(int level, unsigned long, const char*, int, const char* format, ...) {
  if (g_verbosity.load() < (level <= kLogWarn ? 1 : 2)) return;
  char text[600];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  fmt::print(stderr, "rank {}: {}\n", g_rank.load(), text);
}

Status profile(void**, int, void*, std::int64_t, void*) { return kSuccess; }

/// The name as it stands, then as a part of NCCL's pattern: the order of 2.30. 2.20 knows the
/// pattern alone.
void* open_library(const std::string& name) {
  void* opened = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::string reason = opened != nullptr ? "" : dlerror();
  const bool is_path = name.find('/') != std::string::npos;
  if (opened == nullptr && !is_path) {
    opened = dlopen(fmt::format("libnccl-net-{}.so", name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) reason = fmt::format("{}; {}", reason, dlerror());
  }
  if (opened == nullptr) throw Failure(fmt::format("cannot load plug-in {}: {}", name, reason));
  return opened;
}

/// The newest table that NCCL of `highest` takes. 7, 8 and 12 are known here.
int newest(void* library, const char* symbol, int highest) {
  for (int version = highest; version >= 7; --version) {
    const std::string name = fmt::format("{}_v{}", symbol, version);
    if (dlsym(library, name.c_str()) == nullptr) continue;
    if (version == 7 || version == 8 || version == 12) return version;
    throw Failure(
        fmt::format("the plug-in has {}, which NCCL takes before older ones and the player "
                    "does not know",
                    name));
  }
  return 0;
}

/// Nobody may call what a plug-in does not have. Null is allowed from `optional` on.
void need_functions(const void* table, std::size_t bytes, std::size_t optional, const char* name) {
  std::array<void*, 32> functions{};
  std::memcpy(functions.data(), table, bytes);
  for (std::size_t i = 0; i < optional; ++i) {
    if (functions[i] != nullptr) continue;
    throw Failure(fmt::format("{} has null at entry {}, which NCCL calls unseen", name, i));
  }
}

// What NCCL makes of a CollNet of version 7. One library at a time is open, as in NCCL.
CollNetV7* g_coll7 = nullptr;
CollNetV8 g_coll7_as_8;

Status reg_mr_by_7(void* comm, void* data, std::size_t bytes, int pointer, void** mr) {
  if (bytes >= std::size_t{1} << 31) return kInternalError;
  return g_coll7->reg_mr(comm, data, static_cast<int>(bytes), pointer, mr);
}

CollNetV8* as_version_8(CollNetV7* old) {
  g_coll7 = old;
  g_coll7_as_8 = {old->name,
                  old->init,
                  old->devices,
                  nullptr,
                  old->listen,
                  old->connect,
                  old->reduce_support,
                  reg_mr_by_7,
                  old->reg_mr_dmabuf,
                  old->dereg_mr,
                  old->iallreduce,
                  nullptr,
                  nullptr,
                  old->iflush,
                  old->test,
                  old->close_coll,
                  old->close_listen};
  return &g_coll7_as_8;
}

}  // namespace

void set_log_verbosity(int verbosity, int rank) {
  g_verbosity.store(verbosity);
  g_rank.store(rank);
}

Library::Library(const std::string& name, int highest_version) : library_(open_library(name)) {
  const int net = newest(library_, "ncclNetPlugin", highest_version);
  if (net < 8) {
    throw Failure(
        fmt::format("{} exports no ncclNetPlugin of version 8 or later: NCCL drops the "
                    "library, its CollNet included",
                    name));
  }
  if (net == 12) {
    net12_ = static_cast<NetV12*>(dlsym(library_, kNetSymbolV12));
    need_functions(net12_, sizeof(NetV12), 17, kNetSymbolV12);
  } else {
    net8_ = static_cast<NetV8*>(dlsym(library_, kNetSymbolV8));
    need_functions(net8_, sizeof(NetV8), 17, kNetSymbolV8);
  }
  const int coll = newest(library_, "ncclCollNetPlugin", highest_version);
  if (coll == 12) {
    coll12_ = static_cast<CollNetV12*>(dlsym(library_, kCollNetSymbolV12));
    need_functions(coll12_, sizeof(CollNetV12), 11, kCollNetSymbolV12);
  } else if (coll == 8) {
    coll8_ = static_cast<CollNetV8*>(dlsym(library_, kCollNetSymbolV8));
    need_functions(coll8_, sizeof(CollNetV8), 17, kCollNetSymbolV8);
  } else if (coll == 7) {
    auto* coll7 = static_cast<CollNetV7*>(dlsym(library_, kCollNetSymbolV7));
    need_functions(coll7, sizeof(CollNetV7), 15, kCollNetSymbolV7);
    coll8_ = as_version_8(coll7);
  }
}

Library::~Library() { dlclose(library_); }

const char* Library::net_name() const { return net12_ != nullptr ? net12_->name : net8_->name; }

Status Library::init(void** context, std::uint64_t comm_id) {
  const std::lock_guard lock(mutex_);
  if (net12_ != nullptr) {
    CommConfig config;
    return net12_->init(context, comm_id, &config, log, profile);
  }
  return net8_users_++ > 0 ? kSuccess : net8_->init(log);
}

Status Library::finalize(void* context) {
  const std::lock_guard lock(mutex_);
  if (net12_ != nullptr) return net12_->finalize(context);
  --net8_users_;
  return kSuccess;
}

Status Library::devices(int* count) {
  return net12_ != nullptr ? net12_->devices(count) : net8_->devices(count);
}

Status Library::properties(int device, PropertiesV12* properties) {
  if (net12_ != nullptr) return net12_->get_properties(device, properties);
  PropertiesV8 old;
  const Status status = net8_->get_properties(device, &old);
  *properties = PropertiesV12{};
  properties->name = old.name;
  properties->pci_path = old.pci_path;
  properties->guid = old.guid;
  properties->pointers = old.pointers;
  properties->speed_mbps = old.speed_mbps;
  properties->latency_us = old.latency_us;
  properties->comms_max = old.comms_max;
  properties->receives_max = old.receives_max;
  properties->device_type = old.device_type;
  properties->message_bytes = kMessageBytesMaxV8;
  properties->reduce_bytes = kMessageBytesMaxV8 / 2;
  properties->parts.count = 1;
  properties->parts.devices[0] = device;
  return status;
}

Status Library::say_attributes(void* context) {
  if (net12_ == nullptr || net12_->set_attributes == nullptr) return kSuccess;
  Attributes attributes;
  attributes.send = {1, 1, 1, 1};
  attributes.recv = {1, 1, 1, 1};
  return net12_->set_attributes(context, &attributes);
}

Status Library::listen(void* context, int device, void* handle, void** listen_comm) {
  const Timed timed(Call::kListen);
  if (net12_ != nullptr) return net12_->listen(context, device, handle, listen_comm);
  return net8_->listen(device, handle, listen_comm);
}

Status Library::connect(void* context, int device, void* handle, void** send_comm) {
  const Timed timed(Call::kConnect);
  DeviceHandle* none = nullptr;
  if (net12_ != nullptr) return net12_->connect(context, device, handle, send_comm, &none);
  return net8_->connect(device, handle, send_comm, &none);
}

Status Library::accept(void* listen_comm, void** recv_comm) {
  const Timed timed(Call::kAccept);
  DeviceHandle* none = nullptr;
  return net12_ != nullptr ? net12_->accept(listen_comm, recv_comm, &none)
                           : net8_->accept(listen_comm, recv_comm, &none);
}

Status Library::reg_mr(void* comm, void* data, std::size_t bytes, void** mr) {
  const Timed timed(Call::kRegMr);
  return (net12_ != nullptr ? net12_->reg_mr : net8_->reg_mr)(comm, data, bytes, kPointerHost, mr);
}

Status Library::dereg_mr(void* comm, void* mr) {
  const Timed timed(Call::kDeregMr);
  return (net12_ != nullptr ? net12_->dereg_mr : net8_->dereg_mr)(comm, mr);
}

Status Library::isend(void* send_comm, void* data, std::size_t bytes, int tag, void* mr,
                      void** request) {
  const Timed timed(Call::kIsend);
  int parent = 0;
  if (net12_ != nullptr) return net12_->isend(send_comm, data, bytes, tag, mr, &parent, request);
  return net8_->isend(send_comm, data, static_cast<int>(bytes), tag, mr, request);
}

Status Library::irecv(void* recv_comm, int count, void** data, std::size_t* bytes, int* tags,
                      void** mrs, void** request) {
  const Timed timed(Call::kIrecv);
  std::array<void*, 64> parents{};
  if (net12_ != nullptr) {
    return net12_->irecv(recv_comm, count, data, bytes, tags, mrs, parents.data(), request);
  }
  std::array<int, 64> narrow{};
  for (int i = 0; i < count; ++i) narrow[static_cast<std::size_t>(i)] = static_cast<int>(bytes[i]);
  if (*request == optional_completion()) *request = nullptr;
  return net8_->irecv(recv_comm, count, data, narrow.data(), tags, mrs, request);
}

Status Library::test(void* request, int* done, int* sizes) {
  const Timed timed(Call::kTest);
  return (net12_ != nullptr ? net12_->test : net8_->test)(request, done, sizes);
}

Status Library::irecv_consumed(void* recv_comm, int count, void* request) {
  const auto consumed = net12_ != nullptr ? net12_->irecv_consumed : net8_->irecv_consumed;
  return consumed != nullptr ? consumed(recv_comm, count, request) : kSuccess;
}

Status Library::close_send(void* send_comm) {
  const Timed timed(Call::kClose);
  return (net12_ != nullptr ? net12_->close_send : net8_->close_send)(send_comm);
}
Status Library::close_recv(void* recv_comm) {
  const Timed timed(Call::kClose);
  return (net12_ != nullptr ? net12_->close_recv : net8_->close_recv)(recv_comm);
}
Status Library::close_listen(void* listen_comm) {
  const Timed timed(Call::kClose);
  return (net12_ != nullptr ? net12_->close_listen : net8_->close_listen)(listen_comm);
}

// ---- CollNet ----

Status Library::coll_init(void** context, std::uint64_t comm_id) {
  const std::lock_guard lock(mutex_);
  if (coll12_ != nullptr) return coll12_->init(context, comm_id, log);
  return coll8_users_++ > 0 ? kSuccess : coll8_->init(log);
}
Status Library::coll_finalize(void* context) {
  const std::lock_guard lock(mutex_);
  if (coll12_ != nullptr) return coll12_->finalize(context);
  --coll8_users_;
  return kSuccess;
}
Status Library::coll_devices(int* count) {
  return (coll12_ != nullptr ? coll12_->devices : coll8_->devices)(count);
}
Status Library::coll_listen(void* context, int device, void* handle, void** listen_comm) {
  if (coll12_ != nullptr) return coll12_->listen(context, device, handle, listen_comm);
  return coll8_->listen(device, handle, listen_comm);
}
Status Library::coll_connect(void** handles, int nranks, int rank, void* listen_comm,
                             void** coll_comm) {
  const auto connect = coll12_ != nullptr ? coll12_->connect : coll8_->connect;
  return connect(handles, nranks, rank, listen_comm, coll_comm);
}
Status Library::coll_reduce_support(DataType datatype, RedOp redop, int* supported) {
  const auto ask = coll12_ != nullptr ? coll12_->reduce_support : coll8_->reduce_support;
  return ask(datatype, redop, supported);
}
Status Library::coll_reg_mr(void* coll_comm, void* data, std::size_t bytes, void** mr) {
  const Timed timed(Call::kRegMr);
  const auto enter = coll12_ != nullptr ? coll12_->reg_mr : coll8_->reg_mr;
  return enter(coll_comm, data, bytes, kPointerHost, mr);
}
Status Library::coll_dereg_mr(void* coll_comm, void* mr) {
  const Timed timed(Call::kDeregMr);
  return (coll12_ != nullptr ? coll12_->dereg_mr : coll8_->dereg_mr)(coll_comm, mr);
}
Status Library::coll_iallreduce(void* coll_comm, void* input, void* output, std::size_t count,
                                DataType datatype, RedOp redop, void* input_mr, void* output_mr,
                                void** request) {
  const Timed timed(Call::kIsend);
  if (coll12_ != nullptr) {
    return coll12_->iallreduce(coll_comm, input, output, count, datatype, redop, input_mr,
                               output_mr, request);
  }
  return coll8_->iallreduce(coll_comm, input, output, static_cast<int>(count), datatype, redop,
                            input_mr, output_mr, request);
}
Status Library::coll_test(void* request, int* done, int* bytes) {
  const Timed timed(Call::kTest);
  return (coll12_ != nullptr ? coll12_->test : coll8_->test)(request, done, bytes);
}
Status Library::coll_close(void* coll_comm) {
  const Timed timed(Call::kClose);
  return (coll12_ != nullptr ? coll12_->close_coll : coll8_->close_coll)(coll_comm);
}
Status Library::coll_close_listen(void* listen_comm) {
  return (coll12_ != nullptr ? coll12_->close_listen : coll8_->close_listen)(listen_comm);
}

}  // namespace gradwire::nccl
