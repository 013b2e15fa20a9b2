// SPDX-License-Identifier: BSD-3-Clause
#include "client/daemon_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "client/map_shared.h"

namespace gradwire::client {

bool overlap(const std::byte* a, const std::byte* b, std::uint64_t a_bytes,
             std::uint64_t b_bytes) noexcept {
  const auto a_start = reinterpret_cast<std::uintptr_t>(a);
  const auto b_start = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes != 0 && b_bytes != 0 && a_start < b_start + b_bytes && b_start < a_start + a_bytes;
}

Result<std::shared_ptr<Mapping>> DaemonMemory::allocate(Lock& lock, std::uint64_t bytes) {
  auto mapping = request_mapping(lock, bytes);
  if (!mapping && mapping.error().code == ErrorCode::kResourceExhausted) {
    // What is kept to copy later ops through is of the same memory.
    auto unused = staging_.drop_cache();
    if (!unused.empty()) {
      for (auto& piece : unused) forget(std::move(piece));
      mapping = request_mapping(lock, bytes);
    }
  }
  if (!mapping) return mapping;
  shared_[reinterpret_cast<std::uintptr_t>((*mapping)->address)] = *mapping;
  return mapping;
}

void DaemonMemory::withdraw(const Mapping& mapping) {
  shared_.erase(reinterpret_cast<std::uintptr_t>(mapping.address));
}

Result<std::shared_ptr<Mapping>> DaemonMemory::find(const std::byte* start, std::uint64_t bytes,
                                                    const char* what) const {
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  auto it = shared_.upper_bound(address);
  if (it == shared_.begin()) return std::shared_ptr<Mapping>{};
  --it;
  const Mapping& mapping = *it->second;
  const std::uint64_t offset = address - it->first;
  if (offset >= mapping.bytes) return std::shared_ptr<Mapping>{};
  if (bytes > mapping.bytes - offset) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the {} needs {} bytes and starts {} bytes before the end of its shared "
                    "memory",
                    what, bytes, mapping.bytes - offset));
  }
  return it->second;
}

Result<std::shared_ptr<Mapping>> DaemonMemory::request_mapping(Lock& lock, std::uint64_t bytes) {
  ipc::AllocateRequest body;
  body.bytes = bytes;
  const Deadline deadline = Clock::now() + request_timeout_;
  auto request = connection_.begin_request(lock, ipc::MessageType::kAllocate, ipc::bytes_of(body),
                                           deadline, [this](ipc::Message& reply, bool abandoned) {
                                             const auto got = ipc::allocate_reply(reply.body);
                                             if (abandoned && got) forget(got->memory);
                                           });
  if (!request) return tl::unexpected(request.error());
  if (auto done = connection_.await_request(lock, *request, deadline, true); !done) {
    return tl::unexpected(done.error());
  }
  return map_reply((*request)->reply);
}

Result<std::shared_ptr<Mapping>> DaemonMemory::map_reply(ipc::Message& reply) {
  if (const auto on_gpu = ipc::body_as<ipc::CudaAllocateReply>(reply.body);
      on_gpu && on_gpu->memory.memory != 0 && on_gpu->memory.bytes != 0) {
    auto mapping = open_on_gpu(*on_gpu);
    if (mapping) return mapping;
    forget(on_gpu->memory.memory);
    return fail(mapping.error().code,
                "the daemon's gradient memory is on a GPU and cannot be opened here: " +
                    mapping.error().message);
  }
  const auto body = ipc::body_as<ipc::AllocateReply>(reply.body);
  if (!body || reply.fds.size() != 1 || body->memory == 0 || body->bytes == 0) {
    return fail(ErrorCode::kInternal,
                "the daemon's answer to 'allocate' makes no sense: it needs one descriptor, a "
                "region and a size");
  }
  auto address = map_shared(reply.fds[0].get(), body->bytes);
  if (!address) {
    forget(body->memory);
    return tl::unexpected(address.error());
  }
  return std::make_shared<Mapping>(*address, body->bytes, body->memory, body->numa_node);
}

Result<std::shared_ptr<Mapping>> DaemonMemory::open_on_gpu(const ipc::CudaAllocateReply& reply) {
  gpu::CuUuid uuid;
  gpu::CuIpcHandle handle;
  std::memcpy(uuid.bytes, reply.device_uuid, sizeof uuid.bytes);
  std::memcpy(handle.bytes, reply.handle, sizeof handle.bytes);
  if (gpu_ == nullptr || gpu_->uuid() != uuid) {
    auto device = gpu::Device::find(uuid);
    if (!device) return tl::unexpected(device.error());
    gpu_ = std::move(*device);
  }
  auto memory = gpu_->import_memory(handle, reply.memory.bytes);
  if (!memory) return tl::unexpected(memory.error());
  return std::make_shared<Mapping>(std::move(*memory), reply.memory.bytes, reply.memory.memory,
                                   reply.memory.numa_node);
}

void DaemonMemory::forget(std::uint32_t handle) {
  ipc::FreeRequest body;
  body.memory = handle;
  connection_.send_and_forget(ipc::MessageType::kFree, ipc::bytes_of(body));
}

void DaemonMemory::forget(std::shared_ptr<Mapping> mapping) {
  const std::uint32_t handle = mapping->handle;
  // Memory on a GPU must be closed here before the daemon frees it.
  mapping.reset();
  forget(handle);
}

Result<StagingSlot> DaemonMemory::take_staging(Lock& lock, std::uint64_t bytes) {
  if (auto slot = staging_.take(bytes)) return std::move(*slot);
  const std::uint64_t wanted = StagingPool::allocation_bytes(bytes);
  const Deadline deadline = Clock::now() + request_timeout_;
  const auto is_short = [](const auto& mapping) {
    return !mapping && mapping.error().code == ErrorCode::kResourceExhausted;
  };
  auto mapping = request_mapping(lock, wanted);
  for (bool more = true; more && is_short(mapping);) {
    // Some may come back while the daemon is asked.
    const std::uint64_t before = came_back_;
    // Frees memory that is kept for later ops, since this op needs it now.
    for (auto& unused : staging_.drop_cache()) forget(std::move(unused));
    mapping = request_mapping(lock, wanted);
    // What CUDA still copies from, of ops that are over, comes back by itself.
    more = is_short(mapping) && await_leaving(lock, deadline, before);
    if (auto slot = more ? staging_.take(bytes) : std::nullopt) return std::move(*slot);
  }
  if (!mapping) {
    return fail(mapping.error().code,
                fmt::format("no shared memory to copy an op of {} bytes through: {}", bytes,
                            mapping.error().message));
  }
  return staging_.adopt(std::move(*mapping), bytes);
}

void DaemonMemory::give_back(StagingSlot slot) {
  if (slot.mapping == nullptr) return;
  std::shared_ptr<Mapping> surplus = staging_.give_back(std::move(slot));
  if (surplus != nullptr) forget(std::move(surplus));
}

void DaemonMemory::drop_staging(gw_work& work) {
  const StreamOp::EventPtr until = work.copies ? work.copies->last() : nullptr;
  if (is_pending(until)) {
    const bool returns = work.copies->back != nullptr;
    leaving_.push_back({std::move(work.staging), work.output_mapping, until,
                        returns ? work.output : nullptr, returns ? work.extent.output : 0});
    return;
  }
  give_back(std::move(work.staging));
}

void DaemonMemory::take_back_leaving() {
  const auto through = std::partition(leaving_.begin(), leaving_.end(),
                                      [](const auto& memory) { return is_pending(memory.until); });
  for (auto it = through; it != leaving_.end(); ++it) give_back(std::move(it->slot));
  came_back_ += static_cast<std::uint64_t>(leaving_.end() - through);
  leaving_.erase(through, leaving_.end());
}

bool DaemonMemory::await_leaving(Lock& lock, Deadline deadline, std::uint64_t before) {
  while (!connection_.dead() && came_back_ == before && !leaving_.empty() &&
         Clock::now() < deadline) {
    lock.unlock();
    std::this_thread::sleep_for(kStreamPauseMost);
    lock.lock();
    take_back_leaving();
  }
  return came_back_ != before && Clock::now() < deadline;
}

std::vector<StreamOp::EventPtr> DaemonMemory::results_under(const gw_work& work) const {
  std::vector<StreamOp::EventPtr> under;
  for (const LeavingMemory& result : leaving_) {
    if (overlap(work.input, result.output, work.extent.input, result.output_bytes) ||
        overlap(work.output, result.output, work.extent.output, result.output_bytes)) {
      under.push_back(result.until);
    }
  }
  return under;
}

Result<void> DaemonMemory::take_event(Lock& lock, gw_work& work) {
  const Mapping* mapping =
      work.output_mapping != nullptr ? work.output_mapping.get() : work.staging.mapping.get();
  if (mapping == nullptr) mapping = work.input_mapping.get();
  // There are no elements, so there is nothing to wait for on the stream.
  if (mapping == nullptr) return {};
  if (mapping->on_gpu == nullptr) {
    work.copies.emplace();
    return {};
  }
  if (is_transfer(work.call.collective)) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{} is not there for gradient memory of a GPU: send from memory of the "
                            "host, or have daemons with gpu.client_memory = \"host\"",
                            name_of(work.call.collective)));
  }
  if (!free_events_.empty()) {
    work.ready = std::move(free_events_.back());
    free_events_.pop_back();
    return {};
  }
  const Deadline deadline = Clock::now() + request_timeout_;
  const auto request = connection_.request(lock, ipc::MessageType::kMakeEvent, {}, deadline);
  if (!request) return tl::unexpected(request.error());
  const auto reply = ipc::body_as<ipc::MakeEventReply>((*request)->reply.body);
  if (!reply || reply->event == 0) {
    return fail(ErrorCode::kInternal,
                "the daemon's answer to 'make-event' makes no sense: it names no event");
  }
  gpu::CuIpcHandle handle;
  std::memcpy(handle.bytes, reply->handle, sizeof handle.bytes);
  auto event = mapping->on_gpu->device().import_event(handle);
  if (!event) return tl::unexpected(event.error());
  work.ready.handle = reply->event;
  work.ready.event = std::move(*event);
  return {};
}

void DaemonMemory::give_back(ReadyEvent ready) {
  if (ready.event != nullptr) free_events_.push_back(std::move(ready));
}

}  // namespace gradwire::client
