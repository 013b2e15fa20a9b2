// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The tables of CollNet, of versions 7 and 12. They leave out all-gather and reduce-scatter, and
/// NCCL does those by net. collnet.h has the work.
#include <cstdint>
#include <memory>
#include <string>

#include "nccl_net/abi.h"
#include "nccl_net/collnet.h"
#include "nccl_net/plugin_device.h"

namespace gradwire::nccl_net {
namespace {

Status listen_collnet(int number, void* handle, void** listen_comm) {
  return listen_for(false, number, handle, listen_comm);
}
Status listen_collnet_v12(void*, int number, void* handle, void** listen_comm) {
  return listen_collnet(number, handle, listen_comm);
}

Status start_collnet_v12(void** context, std::uint64_t, Logger logger) {
  *context = device_context();
  return start(logger);
}
Status describe_collnet_v12(int number, PropertiesV12* properties) {
  const Status status = describe_v12(number, properties);
  if (status == kSuccess) properties->reduce_bytes = kMessageBytesMaxV8;
  return status;
}
/// NCCL goes on by net after an error, once it has asked again without a listener.
Status join(void* handles[], int nranks, int rank, void* listen_comm, void** coll_comm) {
  *coll_comm = nullptr;
  if (listen_comm == nullptr) return kInvalidArgument;
  return guarded("connect of CollNet", [&] {
    std::string why;
    const auto& listener = *static_cast<Listener*>(listen_comm);
    std::unique_ptr<Collective> made = Collective::join(handles, nranks, rank, listener, why);
    if (made == nullptr) warn("no CollNet: %s", why.c_str());
    *coll_comm = made.get();
    return made.release() != nullptr ? kSuccess : kRemoteError;
  });
}
Status supported(DataType datatype, RedOp redop, int* yes) {
  *yes = Collective::supports(datatype, redop) ? 1 : 0;
  return kSuccess;
}
Status reg_mr_v7(void* comm, void* data, int, int pointer, void** mr) {
  return reg_mr(comm, data, 0, pointer, mr);
}
Status iallreduce(void* coll_comm, void* input, void* output, std::size_t count, DataType datatype,
                  RedOp redop, void*, void*, void** request) {
  *request = nullptr;
  return guarded("iallreduce", [&] {
    Collective::Op* op = nullptr;
    const Status status =
        static_cast<Collective*>(coll_comm)->post(input, output, count, datatype, redop, &op);
    *request = op;
    return status;
  });
}
Status iallreduce_v7(void* coll_comm, void* input, void* output, int count, DataType datatype,
                     RedOp redop, void* input_mr, void* output_mr, void** request) {
  *request = nullptr;
  if (count < 0) return kInvalidArgument;
  return iallreduce(coll_comm, input, output, static_cast<std::size_t>(count), datatype, redop,
                    input_mr, output_mr, request);
}
Status flush_collnet(void*, void*, int, void*, void** request) {
  *request = nullptr;
  return kSuccess;
}
Status test_collnet(void* request, int* done, int* bytes) {
  return guarded("test", [&] {
    return Collective::test(*static_cast<Collective::Op*>(request), done, bytes);
  });
}
Status leave(void* coll_comm) {
  return guarded("close", [&] {
    delete static_cast<Collective*>(coll_comm);
    return kSuccess;
  });
}

}  // namespace
}  // namespace gradwire::nccl_net

#define EXPORTED_TABLE __attribute__((visibility("default")))
namespace ours = gradwire::nccl_net;

extern "C" {
EXPORTED_TABLE extern ours::CollNetV7 ncclCollNetPlugin_v7;
EXPORTED_TABLE extern ours::CollNetV12 ncclCollNetPlugin_v12;

ours::CollNetV7 ncclCollNetPlugin_v7 = {
    "gradwire",           ours::start,    ours::devices,       ours::describe_v7,
    ours::listen_collnet, ours::join,     ours::supported,     ours::reg_mr_v7,
    ours::reg_mr_dmabuf,  ours::dereg_mr, ours::iallreduce_v7, ours::flush_collnet,
    ours::test_collnet,   ours::leave,    ours::close_listener};

ours::CollNetV12 ncclCollNetPlugin_v12 = {"gradwire",
                                          ours::start_collnet_v12,
                                          ours::devices,
                                          ours::describe_collnet_v12,
                                          ours::listen_collnet_v12,
                                          ours::join,
                                          ours::supported,
                                          ours::reg_mr,
                                          ours::reg_mr_dmabuf,
                                          ours::dereg_mr,
                                          ours::iallreduce,
                                          nullptr,
                                          nullptr,
                                          ours::flush_collnet,
                                          ours::test_collnet,
                                          ours::leave,
                                          ours::close_listener,
                                          nullptr,
                                          ours::finalize};
}
