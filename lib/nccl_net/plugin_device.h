// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the tables of net and of CollNet have in common: the device, listeners, memory. Any thread,
/// as NCCL calls. No exception leaves a function of a table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>

#include "nccl_net/abi.h"
#include "nccl_net/descriptor.h"
#include "nccl_net/log.h"

namespace gradwire::nccl_net {

/// What `call` comes to. A child of fork calls nothing: its parent's threads may have had locks
/// when it was made. What `call` throws is memory or threads that are not to be had.
template <class Function>
Status guarded(const char* what, Function&& call) noexcept {
  if (was_forked()) {
    warn("%s: the process that made this one by fork has NCCL's connections, and not this one",
         what);
    return kInvalidUsage;
  }
  try {
    return call();
  } catch (const std::exception& error) {
    warn("%s: %s", what, error.what());
    return kSystemError;
  }
}

/// Asks the daemon, once: an error if there is none.
Status start(Logger logger);
/// What contexts of communicators are: they share everything, and NCCL wants some pointer.
void* device_context();
Status devices(int* count);
Status describe_v7(int number, PropertiesV7* properties);
Status describe_v8(int number, PropertiesV8* properties);
Status describe_v12(int number, PropertiesV12* properties);
/// @param links  connections of net come, and those of CollNet do not
Status listen_for(bool links, int number, void* handle, void** listen_comm);
Status close_listener(void* listen_comm);
Status reg_mr(void* comm, void* data, std::size_t bytes, int pointer, void** mr);
Status reg_mr_dmabuf(void* comm, void* data, std::size_t bytes, int pointer, std::uint64_t offset,
                     int fd, void** mr);
Status dereg_mr(void* comm, void* mr);
Status finalize(void* context);

}  // namespace gradwire::nccl_net
