// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A plug-in's library, loaded as NCCL loads it: by its name and then by NCCL's pattern for names,
/// the newest table of functions first. Whatever the version, calls have the form of version 12;
/// what NCCL does for older plug-ins is done here. Calls are timed. Any thread; init() and
/// finalize() are under a lock, as NCCL has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "nccl_net/abi.h"

namespace gradwire::nccl {

class Library {
 public:
  /// Throws a Failure that says what is missing.
  Library(const std::string& name, int highest_version);
  /// Closes the library, as NCCL does since 2.22 when the last communicator ends.
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  [[nodiscard]] int net_version() const { return net12_ != nullptr ? 12 : 8; }
  [[nodiscard]] const char* net_name() const;
  [[nodiscard]] bool has_collnet() const { return coll8_ != nullptr || coll12_ != nullptr; }

  // What each of them does is in nccl_net/abi.h. Each returns the plug-in's own status.
  nccl_net::Status init(void** context, std::uint64_t comm_id);
  nccl_net::Status finalize(void* context);
  nccl_net::Status devices(int* count);
  nccl_net::Status properties(int device, nccl_net::PropertiesV12* properties);
  /// NCCL says so before it connects, and at the start of each op, if the plug-in listens.
  nccl_net::Status say_attributes(void* context);
  nccl_net::Status listen(void* context, int device, void* handle, void** listen_comm);
  nccl_net::Status connect(void* context, int device, void* handle, void** send_comm);
  nccl_net::Status accept(void* listen_comm, void** recv_comm);
  nccl_net::Status reg_mr(void* comm, void* data, std::size_t bytes, void** mr);
  nccl_net::Status dereg_mr(void* comm, void* mr);
  nccl_net::Status isend(void* send_comm, void* data, std::size_t bytes, int tag, void* mr,
                         void** request);
  nccl_net::Status irecv(void* recv_comm, int count, void** data, std::size_t* bytes, int* tags,
                         void** mrs, void** request);
  nccl_net::Status test(void* request, int* done, int* sizes);
  nccl_net::Status irecv_consumed(void* recv_comm, int count, void* request);
  nccl_net::Status close_send(void* send_comm);
  nccl_net::Status close_recv(void* recv_comm);
  nccl_net::Status close_listen(void* listen_comm);

  nccl_net::Status coll_init(void** context, std::uint64_t comm_id);
  nccl_net::Status coll_finalize(void* context);
  nccl_net::Status coll_devices(int* count);
  nccl_net::Status coll_listen(void* context, int device, void* handle, void** listen_comm);
  nccl_net::Status coll_connect(void** handles, int nranks, int rank, void* listen_comm,
                                void** coll_comm);
  nccl_net::Status coll_reduce_support(nccl_net::DataType datatype, nccl_net::RedOp redop,
                                       int* supported);
  nccl_net::Status coll_reg_mr(void* coll_comm, void* data, std::size_t bytes, void** mr);
  nccl_net::Status coll_dereg_mr(void* coll_comm, void* mr);
  nccl_net::Status coll_iallreduce(void* coll_comm, void* input, void* output, std::size_t count,
                                   nccl_net::DataType datatype, nccl_net::RedOp redop,
                                   void* input_mr, void* output_mr, void** request);
  nccl_net::Status coll_test(void* request, int* done, int* bytes);
  nccl_net::Status coll_close(void* coll_comm);
  nccl_net::Status coll_close_listen(void* listen_comm);

 private:
  void* library_ = nullptr;
  nccl_net::NetV8* net8_ = nullptr;
  nccl_net::NetV12* net12_ = nullptr;
  nccl_net::CollNetV8* coll8_ = nullptr;  ///< of version 7: what NCCL makes of it
  nccl_net::CollNetV12* coll12_ = nullptr;
  std::mutex mutex_;
  int net8_users_ = 0;  ///< plug-ins of version 8 are initialised once
  int coll8_users_ = 0;
};

/// What the player gives to plug-ins as NCCL's logger. 0: silent, 1: warnings, 2: news as well.
void set_log_verbosity(int verbosity, int rank);

}  // namespace gradwire::nccl
