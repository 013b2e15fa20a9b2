// SPDX-License-Identifier: BSD-3-Clause
// memory_limits.cc says how much a client and a user may have, memories_kept.cc what clients that
// hung up keep.
#include "control/memory/memories.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "control/bodies.h"

namespace gradwire::control {
namespace {

/// Zeroing this much takes some 10 ms, for which other users of the worker have to wait.
constexpr std::uint64_t kPieceBytes = 64ull << 20;
/// What the worker zeroes in a microsecond.
constexpr std::uint64_t kMadeBytesPerStep = 8192;

/// Memory that nothing here refers to. It is freed with the job that owns it, even if the job never
/// runs.
class Discarded {
 public:
  /// @param taken_back  from whoever else has it, too
  Discarded(ClientMemory& registry, ipc::SharedMemory memory, bool registered, bool taken_back)
      : registry_(registry),
        memory_(std::move(memory)),
        registered_(registered),
        taken_back_(taken_back) {}
  ~Discarded() { go(); }
  Discarded(const Discarded&) = delete;
  Discarded& operator=(const Discarded&) = delete;

  void go() {
    if (std::exchange(registered_, false)) registry_.unregister_host(memory_.data());
    if (std::exchange(taken_back_, false)) memory_.take_back();
    memory_ = {};
  }

 private:
  ClientMemory& registry_;
  ipc::SharedMemory memory_;
  bool registered_;
  bool taken_back_;
};

}  // namespace

Memories::Memories(const ManagerOptions& options, ClientMemory& memory, ClientTable& clients,
                   LaneRequests& requests, Replies& replies, WorkMeter& work,
                   const Stopping& stopping, ipc::Worker& worker, ipc::Closers* closers)
    : options_(options),
      memory_(memory),
      clients_(clients),
      requests_(requests),
      replies_(replies),
      work_(work),
      stopping_(stopping),
      worker_(worker),
      closers_(closers) {}

Memories::~Memories() {
  for (const auto& [id, client] : clients_.all()) {
    for (const auto& [handle, memory] : client->memories) {
      if (memory.on_gpu()) memory_.free_on_gpu(memory.gpu.address);
      if (memory.registered) memory_.unregister_host(memory.mapping.data());
    }
    // The worker has ended, perhaps before this memory was complete.
    if (client->making != nullptr && client->making->registered) {
      memory_.unregister_host(client->making->memory.data());
    }
  }
}

std::uint32_t Memories::unused_handle(const Client& client) {
  return next_unused(last_handle_, options_.last_id,
                     [&client](std::uint32_t handle) { return client.memories.contains(handle); });
}

void Memories::allocate(const PendingReply& to, Client& client, std::span<const std::byte> body) {
  const auto wanted = ipc::body_as<ipc::AllocateRequest>(body);
  if (!wanted) return replies_.error(to, wrong_size<ipc::AllocateRequest>(to.type, body));
  const Limits& limits = options_.limits;
  if (!stopping_.running()) {
    return replies_.error(to, {ErrorCode::kUnavailable, "the daemon is stopping"});
  }
  if (client.memories.size() >= limits.regions_per_client) {
    return replies_.error(to, {ErrorCode::kResourceExhausted,
                               fmt::format("the client has {} memory regions, and "
                                           "limits.client_regions = {}: free one, or raise "
                                           "limits.client_regions in the daemon's configuration",
                                           client.memories.size(), limits.regions_per_client)});
  }
  const std::uint64_t used = client.memory_bytes();
  if (wanted->bytes == 0 || wanted->bytes > limits.bytes_per_client - used) {
    const ErrorCode code =
        wanted->bytes == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kResourceExhausted;
    return replies_.error(to,
                          {code, fmt::format("{} bytes of gradient memory were asked for: it must "
                                             "be 1 to {}, since the client has {} of its {} "
                                             "already (limits.client_memory_mib)",
                                             wanted->bytes, limits.bytes_per_client - used, used,
                                             limits.bytes_per_client)});
  }
  if (const auto room = room_for(client, wanted->bytes); !room) {
    return replies_.error(to, room.error());
  }
  const std::uint32_t handle = unused_handle(client);
  if (memory_.is_on_gpu()) {
    auto made = make_on_gpu(wanted->bytes);
    if (!made) return replies_.error(to, made.error());
    if (auto fits = check_quota(used, made->bytes()); !fits) {
      memory_.free_on_gpu(made->gpu.address);
      return replies_.error(to, fits.error());
    }
    made->reply = to;
    client.memories.emplace(handle, std::move(*made));
    return add(client, handle);
  }
  Memory& memory = client.memories[handle];
  memory.state = Memory::State::kMaking;
  memory.wanted_bytes = wanted->bytes;
  memory.reply = to;
  client.to_make.push_back(handle);
  make_next(client);
}

void Memories::make_next(Client& client) {
  while (client.making == nullptr && !client.to_make.empty()) {
    const std::uint32_t handle = client.to_make.front();
    client.to_make.pop_front();
    auto reserved = reserve(client, client.memories.at(handle).wanted_bytes);
    if (!reserved) {
      failed(client, handle, reserved.error());
      continue;
    }
    client.memories.at(handle).wanted_bytes = reserved->bytes();
    client.making = std::make_shared<Making>();
    client.making->memory = std::move(*reserved);
    const std::shared_ptr<Making> making = client.making;
    worker_.submit_in_turn(
        client.peer.uid, [making, &memory = memory_] { return make_piece(*making, memory); },
        [this, making, id = client.id, handle] { made(id, handle, *making); });
  }
}

bool Memories::make_piece(Making& making, ClientMemory& memory) {
  if (making.cancelled.load(std::memory_order_relaxed)) return true;
  if (!making.populated) {
    const auto all = making.memory.populate(kPieceBytes);
    if (!all) making.error = all.error();
    making.populated = all.value_or(false);
    return !all || (*all && !memory.is_registered());
  }
  const auto registered = memory.register_host(making.memory.data(), making.memory.bytes());
  if (!registered) making.error = registered.error();
  making.registered = registered.has_value();
  return true;
}

Result<ipc::SharedMemory> Memories::reserve(const Client& client, std::uint64_t bytes) const {
  ipc::SharedMemoryOptions options;
  options.name = fmt::format("gradwire-memory-{}", client.peer.pid);
  options.bytes = bytes;
  options.numa_node = options_.daemon.numa_node;
  options.pages = options_.pages;
  options.owner = client.id;
  auto memory = ipc::SharedMemory::reserve(options);
  if (!memory) return memory;
  if (auto fits = check_quota(client.memory_bytes() - bytes, memory->bytes()); !fits) {
    return tl::unexpected(fits.error());
  }
  return memory;
}

void Memories::made(std::uint32_t client_id, std::uint32_t handle, Making& making) {
  Client& client =
      *clients_.by_id(client_id);  // exists, since a client is kept while it has memory
  client.making.reset();
  work_.charge(client.peer.uid, making.memory.bytes() / kMadeBytesPerStep);
  const auto fail_with = [&](const Error& error) {
    discard(client.peer.uid, std::move(making.memory), making.registered, {});
    failed(client, handle, error);
  };
  if (client.retired) {
    fail_with({});
    return forget_if_gone(client_id);
  }
  const auto finished =
      making.error ? Result<void>(tl::unexpected(*making.error)) : making.memory.finish();
  if (!finished) {
    fail_with(finished.error());
  } else {
    Memory& memory = client.memories.at(handle);
    memory.mapping = std::move(making.memory);
    memory.registered = making.registered;
    add(client, handle);
  }
  make_next(client);
}

void Memories::add(Client& client, std::uint32_t handle) {
  Memory& memory = client.memories.at(handle);
  memory.state = Memory::State::kAdding;
  command::Request add;
  add.type = command::RequestType::kAddMemory;
  add.client_id = client.id;
  add.memory = handle;
  add.region = {client.id, handle, memory.data(), memory.bytes()};
  requests_.send(LaneRequests::kCommandLane, add);
}

void Memories::failed(Client& client, std::uint32_t handle, const Error& error) {
  const auto found = client.memories.find(handle);
  const std::optional<PendingReply> to = found->second.reply;
  client.memories.erase(found);
  if (to) replies_.error(*to, error);
}

void Memories::discard(uid_t uid, ipc::SharedMemory memory, bool registered,
                       std::function<void()> done) {
  memory.abandon();
  // Clients keep what they have when the daemon stops.
  const bool taken_back = stopping_.running();
  const std::uint64_t bytes = memory.bytes();
  letting_go_[uid] += bytes;
  auto let_go = [this, uid, bytes, done = std::move(done)] {
    const auto found = letting_go_.find(uid);
    if ((found->second -= bytes) == 0) letting_go_.erase(found);
    if (done) done();
  };
  auto held = std::make_shared<Discarded>(memory_, std::move(memory), registered, taken_back);
  if (!registered && closers_ == nullptr) {
    held->go();
    return let_go();
  }
  if (!registered) {
    return closers_->submit(
        uid, [held] { held->go(); }, std::move(let_go));
  }
  worker_.submit_in_turn(
      uid,
      [held] {
        held->go();
        return true;
      },
      std::move(let_go));
}

Result<Memory> Memories::make_on_gpu(std::uint64_t bytes) {
  Memory memory;
  auto made = memory_.allocate_on_gpu(bytes);
  if (!made) return tl::unexpected(made.error());
  memory.gpu = *made;
  memory.gpu_fd = ipc::UniqueFd(std::exchange(memory.gpu.fd, -1));
  return memory;
}

void Memories::on_added(Client& client, std::uint32_t handle) {
  const auto found = client.memories.find(handle);
  if (found == client.memories.end() || found->second.state != Memory::State::kAdding) return;
  Memory& memory = found->second;
  memory.state = Memory::State::kLive;
  if (!memory.reply) return;
  const PendingReply to = *memory.reply;
  memory.reply.reset();
  ipc::AllocateReply body;
  body.bytes = memory.bytes();
  body.memory = handle;
  body.numa_node = memory.mapping.numa_node();
  if (memory.gpu.cuda) {
    ipc::CudaAllocateReply on_gpu;
    on_gpu.memory = body;
    std::memcpy(on_gpu.device_uuid, memory.gpu.cuda->uuid.bytes, sizeof on_gpu.device_uuid);
    std::memcpy(on_gpu.handle, memory.gpu.cuda->handle.bytes, sizeof on_gpu.handle);
    return replies_.send(to, ipc::bytes_of(on_gpu));
  }
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(memory.duplicate_fd());
  if (!fds.front()) {
    remove(client, handle);
    return replies_.error(
        to, {ErrorCode::kResourceExhausted, "the daemon has no file descriptors left"});
  }
  replies_.send(to, ipc::bytes_of(body), std::move(fds));
}

void Memories::free(const PendingReply& to, Client& client, std::span<const std::byte> body) {
  const auto wanted = ipc::body_as<ipc::FreeRequest>(body);
  if (!wanted) return replies_.error(to, wrong_size<ipc::FreeRequest>(to.type, body));
  const auto found = client.memories.find(wanted->memory);
  if (found == client.memories.end() || found->second.state != Memory::State::kLive) {
    return replies_.error(
        to, {ErrorCode::kNotFound,
             fmt::format("memory {} is not a live region of this client", wanted->memory)});
  }
  found->second.reply = to;
  remove(client, wanted->memory);
}

void Memories::remove(Client& client, std::uint32_t handle) {
  Memory& memory = client.memories.at(handle);
  if (memory.state == Memory::State::kRemoving || memory.state == Memory::State::kMaking) return;
  memory.state = Memory::State::kRemoving;
  command::Request remove;
  remove.type = command::RequestType::kRemoveMemory;
  remove.client_id = client.id;
  remove.memory = handle;
  requests_.send(LaneRequests::kCommandLane, remove);
}

void Memories::on_removed(Client& client, std::uint32_t handle) {
  const auto found = client.memories.find(handle);
  if (found == client.memories.end()) return;
  if (is_kept(client, found->second, client.retired && is_gone(client))) {
    found->second.state = Memory::State::kLingering;
    return;
  }
  const std::optional<PendingReply> to = found->second.reply;
  if (found->second.on_gpu()) memory_.free_on_gpu(found->second.gpu.address);
  ipc::SharedMemory mapping = std::move(found->second.mapping);
  const bool registered = found->second.registered;
  client.memories.erase(found);
  // Nothing in the daemon refers to it any more.
  discard(client.peer.uid, std::move(mapping), registered, [this, to] {
    if (to) replies_.send(*to, {});
  });
}

void Memories::make_event(const PendingReply& to, Client& client) {
  if (client.events.size() >= ipc::kOpCommands) {
    return replies_.error(to, {ErrorCode::kResourceExhausted,
                               fmt::format("the client has {} events, one for each op that can be "
                                           "unfinished",
                                           client.events.size())});
  }
  auto made = memory_.make_ready_event();
  if (!made) return replies_.error(to, made.error());
  command::Request add;
  add.type = command::RequestType::kAddEvent;
  add.client_id = client.id;
  add.event = made->event.get();
  client.events.push_back(std::move(made->event));
  add.event_handle = static_cast<std::uint32_t>(client.events.size());
  PendingEvent& pending = client.pending_events[add.event_handle];
  pending.reply = to;
  pending.body.event = add.event_handle;
  std::memcpy(pending.body.handle, made->handle.bytes, sizeof pending.body.handle);
  requests_.send(LaneRequests::kCommandLane, add);
}

void Memories::on_event_added(Client& client, std::uint32_t handle) {
  const auto found = client.pending_events.find(handle);
  if (found == client.pending_events.end()) return;
  const PendingEvent pending = found->second;
  client.pending_events.erase(found);
  if (!client.retired) replies_.send(pending.reply, ipc::bytes_of(pending.body));
}

}  // namespace gradwire::control
