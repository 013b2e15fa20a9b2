// SPDX-License-Identifier: BSD-3-Clause
// Clients and their memory: open, allocate, free, and what happens when a client is gone.
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "control/bodies.h"
#include "control/manager.h"

namespace gradwire::control {
namespace {

/// Lane 0 alone reads the clients' queues and checks their memory.
constexpr std::uint8_t kCommandLane = 0;

/// Zeroing it takes some 10 ms: so long others wait for a worker that all share.
constexpr std::uint64_t kPieceBytes = 64ull << 20;

constexpr TimeNs kFaultCheckIntervalNs = 100'000'000;
constexpr TimeNs kLingerCheckIntervalNs = 10'000'000;
/// A process takes milliseconds to end; one that hangs up and goes on has no claim to memory.
constexpr TimeNs kLingerNs = 5'000'000'000;

/// Memory that nothing refers to. It goes with the job that has it, also if nobody does the job.
class Discarded {
 public:
  Discarded(ClientMemory& registry, ipc::SharedMemory memory, bool registered)
      : registry_(registry), memory_(std::move(memory)), registered_(registered) {}
  ~Discarded() { go(); }
  Discarded(const Discarded&) = delete;
  Discarded& operator=(const Discarded&) = delete;

  void go() {
    if (std::exchange(registered_, false)) registry_.unregister_host(memory_.data());
    memory_ = {};
  }

 private:
  ClientMemory& registry_;
  ipc::SharedMemory memory_;
  bool registered_;
};

/// Two ends of a wake-up: what is written to one is read from the other, 8 bytes at a time. Each
/// end has its own O_NONBLOCK, unlike two descriptors of an eventfd.
Result<std::pair<ipc::UniqueFd, ipc::UniqueFd>> make_wakeup() {
  int fds[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("socketpair: {}", std::strerror(errno)));
  }
  return std::pair(ipc::UniqueFd(fds[0]), ipc::UniqueFd(fds[1]));
}

}  // namespace

ipc::RankInfo Manager::info_for(uid_t uid) const {
  ipc::RankInfo info = own_info_;
  info.secret = secret_for(options_.daemon.secret, uid);
  return info;
}

void Manager::open(const PendingReply& to, const ipc::PeerCredentials& peer,
                   std::span<const std::byte> body, TimeNs now) {
  const auto wanted = ipc::body_as<ipc::OpenRequest>(body);
  if (!wanted) return reply_error(to, wrong_size<ipc::OpenRequest>(to.type, body));
  if (wanted->abi_version != 1) {
    return reply_error(to, {ErrorCode::kUnsupported,
                            fmt::format("the client speaks ABI version {}, this daemon speaks 1",
                                        wanted->abi_version)});
  }
  if (stop_ != StopState::kRunning) {
    return reply_error(to, {ErrorCode::kUnavailable, "the daemon is stopping"});
  }
  if (client_of(to.connection) != nullptr) {
    return reply_error(to, {ErrorCode::kBusy, "this connection is open already"});
  }
  if (const auto room = room_for_client(peer.uid); !room) return reply_error(to, room.error());
  auto made = make_client(peer);
  if (!made) return reply_error(to, made.error());
  Client& client = **made;
  client.connection = to.connection;
  client.since = now;
  client.open_reply = to;
  clients_.emplace(client.id, std::move(*made));
  sink_.keep(to.connection);
  command::Request add;
  add.type = command::RequestType::kAddClient;
  add.client_id = client.id;
  add.client = &client.port;
  request(kCommandLane, add);
}

Result<void> Manager::room_for_client(uid_t uid) const {
  const Limits& limits = options_.limits;
  if (clients_.size() >= limits.clients) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("the daemon has {} clients, and limits.clients = {}: close one, or "
                            "raise limits.clients in the daemon's configuration",
                            clients_.size(), limits.clients));
  }
  const auto of_user = std::ranges::count_if(
      clients_, [uid](const auto& entry) { return entry.second->peer.uid == uid; });
  if (static_cast<std::uint64_t>(of_user) >= limits.clients_per_user) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("user {} has {} clients, and limits.user_clients = {}: close one, or "
                            "raise limits.user_clients in the daemon's configuration",
                            uid, of_user, limits.clients_per_user));
  }
  return {};
}

Result<std::unique_ptr<Client>> Manager::make_client(const ipc::PeerCredentials& peer) {
  auto client = std::make_unique<Client>();
  client->peer = peer;
  ipc::SharedMemoryOptions options;
  options.name = fmt::format("gradwire-queue-{}", peer.pid);
  options.bytes = sizeof(ipc::QueueRegion);
  options.numa_node = options_.daemon.numa_node;
  options.pages = options_.pages;
  auto queue = ipc::SharedMemory::create(options);
  if (!queue) return tl::unexpected(queue.error());
  client->queue = std::move(*queue);
  ipc::QueueRegion* region = ipc::create_queue_region(client->queue.data(), client->queue.bytes());
  auto doorbell = make_wakeup();
  if (!doorbell) return tl::unexpected(doorbell.error());
  std::tie(client->doorbell, client->client_doorbell) = std::move(*doorbell);
  auto completion = make_wakeup();
  if (!completion) return tl::unexpected(completion.error());
  std::tie(client->completion, client->client_completion) = std::move(*completion);
  client->id = unused_client_id();
  client->port.client_id = client->id;
  client->port.queue = ipc::DaemonQueue(region);
  client->port.completion_fd = client->completion.get();
  client->port.doorbell_fd = client->doorbell.get();
  return client;
}

std::uint32_t Manager::unused_client_id() {
  return next_unused(last_client_id_, [this](std::uint32_t id) {
    // A group keeps the ids of members that are gone until its last member has left.
    return clients_.contains(id) || std::ranges::any_of(groups_, [id](const auto& entry) {
             return entry.second->member_of(id) != nullptr;
           });
  });
}

std::uint32_t Manager::unused_memory_handle(const Client& client) {
  return next_unused(last_memory_,
                     [&client](std::uint32_t handle) { return client.memories.contains(handle); });
}

void Manager::client_added(Client& client) {
  if (client.retired || !client.open_reply) return;
  ipc::OpenReply body;
  body.incarnation = options_.daemon.incarnation;
  body.client_id = client.id;
  body.lanes = lanes_.lanes();
  body.max_payload_bytes = options_.daemon.max_payload_bytes;
  body.numa_node = options_.daemon.numa_node;
  body.queue_region_bytes = client.queue.bytes();
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(client.queue.duplicate_fd());
  fds.push_back(client.client_doorbell.duplicate());
  fds.push_back(client.client_completion.duplicate());
  const PendingReply to = *client.open_reply;
  client.open_reply.reset();
  for (const ipc::UniqueFd& fd : fds) {
    if (!fd) {
      reply_error(to, {ErrorCode::kResourceExhausted, "the daemon has no file descriptors left"});
      return sink_.hang_up(client.connection);
    }
  }
  reply(to, ipc::bytes_of(body), std::move(fds));
  spdlog::info("client {} opened: pid {}, uid {}", client.id, client.peer.pid, client.peer.uid);
}

void Manager::allocate(const PendingReply& to, Client& client, std::span<const std::byte> body) {
  const auto wanted = ipc::body_as<ipc::AllocateRequest>(body);
  if (!wanted) return reply_error(to, wrong_size<ipc::AllocateRequest>(to.type, body));
  const Limits& limits = options_.limits;
  if (stop_ != StopState::kRunning) {
    return reply_error(to, {ErrorCode::kUnavailable, "the daemon is stopping"});
  }
  if (client.memories.size() >= limits.regions_per_client) {
    return reply_error(to, {ErrorCode::kResourceExhausted,
                            fmt::format("the client has {} memory regions, and "
                                        "limits.client_regions = {}",
                                        client.memories.size(), limits.regions_per_client)});
  }
  const std::uint64_t used = client.memory_bytes();
  if (wanted->bytes == 0 || wanted->bytes > limits.bytes_per_client - used) {
    const ErrorCode code =
        wanted->bytes == 0 ? ErrorCode::kInvalidArgument : ErrorCode::kResourceExhausted;
    return reply_error(to, {code, fmt::format("{} bytes wanted, must be 1 to {} (the client has {} "
                                              "of its {} already: limits.client_memory_mib)",
                                              wanted->bytes, limits.bytes_per_client - used, used,
                                              limits.bytes_per_client)});
  }
  const std::uint32_t handle = unused_memory_handle(client);
  if (memory_.is_on_gpu()) {
    auto made = make_memory_on_gpu(wanted->bytes);
    if (!made) return reply_error(to, made.error());
    if (auto fits = check_quota(used, made->bytes()); !fits) {
      memory_.free_on_gpu(made->gpu.address);
      return reply_error(to, fits.error());
    }
    made->reply = to;
    client.memories.emplace(handle, std::move(*made));
    return add_memory(client, handle);
  }
  Memory& memory = client.memories[handle];
  memory.state = Memory::State::kMaking;
  memory.wanted_bytes = wanted->bytes;
  memory.reply = to;
  client.to_make.push_back(handle);
  make_next_memory(client);
}

void Manager::make_next_memory(Client& client) {
  while (client.making == nullptr && !client.to_make.empty()) {
    const std::uint32_t handle = client.to_make.front();
    client.to_make.pop_front();
    auto reserved = reserve_memory(client, client.memories.at(handle).wanted_bytes);
    if (!reserved) {
      memory_failed(client, handle, reserved.error());
      continue;
    }
    client.memories.at(handle).wanted_bytes = reserved->bytes();
    client.making = std::make_shared<Making>();
    client.making->memory = std::move(*reserved);
    const std::shared_ptr<Making> making = client.making;
    worker_.submit(
        ipc::Worker::Order::kInTurn,
        [making, &memory = memory_] { return make_piece(*making, memory); },
        [this, making, id = client.id, handle] { memory_made(id, handle, *making); });
  }
}

bool Manager::make_piece(Making& making, ClientMemory& memory) {
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

Result<ipc::SharedMemory> Manager::reserve_memory(const Client& client, std::uint64_t bytes) const {
  ipc::SharedMemoryOptions options;
  options.name = fmt::format("gradwire-memory-{}", client.peer.pid);
  options.bytes = bytes;
  options.numa_node = options_.daemon.numa_node;
  options.pages = options_.pages;
  auto memory = ipc::SharedMemory::reserve(options);
  if (!memory) return memory;
  if (auto fits = check_quota(client.memory_bytes() - bytes, memory->bytes()); !fits) {
    return tl::unexpected(fits.error());
  }
  return memory;
}

Result<void> Manager::check_quota(std::uint64_t used, std::uint64_t bytes) const {
  const std::uint64_t limit = options_.limits.bytes_per_client;
  if (used + bytes <= limit) return {};
  return fail(ErrorCode::kResourceExhausted,
              fmt::format("{} bytes in whole pages, the client has {} of its {} left "
                          "(limits.client_memory_mib)",
                          bytes, limit - used, limit));
}

void Manager::memory_made(std::uint32_t client_id, std::uint32_t handle, Making& making) {
  Client& client = *clients_.at(client_id);  // kept while it has memory, and this is some
  client.making.reset();
  const auto fail_with = [&](const Error& error) {
    discard(std::move(making.memory), making.registered, {});
    memory_failed(client, handle, error);
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
    add_memory(client, handle);
  }
  make_next_memory(client);
}

void Manager::add_memory(Client& client, std::uint32_t handle) {
  Memory& memory = client.memories.at(handle);
  memory.state = Memory::State::kAdding;
  command::Request add;
  add.type = command::RequestType::kAddMemory;
  add.client_id = client.id;
  add.memory = handle;
  add.region = {client.id, handle, memory.data(), memory.bytes()};
  request(kCommandLane, add);
}

void Manager::memory_failed(Client& client, std::uint32_t handle, const Error& error) {
  const auto found = client.memories.find(handle);
  const std::optional<PendingReply> to = found->second.reply;
  client.memories.erase(found);
  if (to) reply_error(*to, error);
}

void Manager::discard(ipc::SharedMemory memory, bool registered, std::function<void()> done) {
  memory.abandon();
  if (memory.bytes() <= kPieceBytes && !registered) {
    memory = {};
    if (done) done();
    return;
  }
  auto held = std::make_shared<Discarded>(memory_, std::move(memory), registered);
  worker_.submit(
      ipc::Worker::Order::kInTurn,
      [held] {
        held->go();
        return true;
      },
      [done = std::move(done)] {
        if (done) done();
      });
}

Result<Memory> Manager::make_memory_on_gpu(std::uint64_t bytes) {
  Memory memory;
  auto made = memory_.allocate_on_gpu(bytes);
  if (!made) return tl::unexpected(made.error());
  memory.gpu = *made;
  memory.gpu_fd = ipc::UniqueFd(std::exchange(memory.gpu.fd, -1));
  return memory;
}

void Manager::memory_added(Client& client, std::uint32_t handle) {
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
    return reply(to, ipc::bytes_of(on_gpu));
  }
  std::vector<ipc::UniqueFd> fds;
  fds.push_back(memory.duplicate_fd());
  if (!fds.front()) {
    remove_memory(client, handle);
    return reply_error(to,
                       {ErrorCode::kResourceExhausted, "the daemon has no file descriptors left"});
  }
  reply(to, ipc::bytes_of(body), std::move(fds));
}

void Manager::free_memory(const PendingReply& to, Client& client, std::span<const std::byte> body) {
  const auto wanted = ipc::body_as<ipc::FreeRequest>(body);
  if (!wanted) return reply_error(to, wrong_size<ipc::FreeRequest>(to.type, body));
  const auto found = client.memories.find(wanted->memory);
  if (found == client.memories.end() || found->second.state != Memory::State::kLive) {
    return reply_error(
        to, {ErrorCode::kNotFound,
             fmt::format("memory {} is not a live region of this client", wanted->memory)});
  }
  found->second.reply = to;
  remove_memory(client, wanted->memory);
}

void Manager::remove_memory(Client& client, std::uint32_t handle) {
  Memory& memory = client.memories.at(handle);
  if (memory.state == Memory::State::kRemoving || memory.state == Memory::State::kMaking) return;
  memory.state = Memory::State::kRemoving;
  command::Request remove;
  remove.type = command::RequestType::kRemoveMemory;
  remove.client_id = client.id;
  remove.memory = handle;
  request(kCommandLane, remove);
}

void Manager::memory_removed(Client& client, std::uint32_t handle) {
  const auto found = client.memories.find(handle);
  if (found == client.memories.end()) return;
  if (found->second.gpu.cuda && client.linger_until != kNever) {
    found->second.state = Memory::State::kLingering;
    return;
  }
  const std::optional<PendingReply> to = found->second.reply;
  if (found->second.on_gpu()) memory_.free_on_gpu(found->second.gpu.address);
  ipc::SharedMemory mapping = std::move(found->second.mapping);
  const bool registered = found->second.registered;
  client.memories.erase(found);
  // Nothing in the daemon refers to it any more.
  discard(std::move(mapping), registered, [this, to] {
    if (to) reply(*to, {});
  });
}

void Manager::watch_process(Client& client, TimeNs now) {
  const bool has_some = std::any_of(client.memories.begin(), client.memories.end(),
                                    [](const auto& entry) { return entry.second.gpu.cuda; });
  if (!has_some || stop_ != StopState::kRunning) return;
  client.process = ipc::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, client.peer.pid, 0)));
  // Of a process that cannot be watched the end is not known.
  if (!client.process && errno == ESRCH) return;
  client.linger_until = now + kLingerNs;
}

void Manager::release_lingering(TimeNs now) {
  if (now < next_linger_check_) return;
  next_linger_check_ = now + kLingerCheckIntervalNs;
  for (auto at = clients_.begin(); at != clients_.end();) {
    Client& client = *(at++)->second;
    if (client.linger_until == kNever) continue;
    pollfd process{client.process.get(), POLLIN, 0};
    const bool ended = client.process && ::poll(&process, 1, 0) == 1;
    const bool goes = ended || now >= client.linger_until || stop_ != StopState::kRunning;
    if (!goes) continue;
    client.linger_until = kNever;
    std::vector<std::uint32_t> handles;
    for (const auto& [handle, memory] : client.memories) {
      if (memory.state == Memory::State::kLingering) handles.push_back(handle);
    }
    for (const std::uint32_t handle : handles) memory_removed(client, handle);
    forget_if_gone(client.id);
  }
}

void Manager::make_event(const PendingReply& to, Client& client) {
  if (client.events.size() >= ipc::kCommandEntries) {
    return reply_error(to, {ErrorCode::kResourceExhausted,
                            fmt::format("the client has {} events, one for each command that can "
                                        "be unfinished",
                                        client.events.size())});
  }
  auto made = memory_.make_ready_event();
  if (!made) return reply_error(to, made.error());
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
  request(kCommandLane, add);
}

void Manager::event_added(Client& client, std::uint32_t handle) {
  const auto found = client.pending_events.find(handle);
  if (found == client.pending_events.end()) return;
  const PendingEvent pending = found->second;
  client.pending_events.erase(found);
  if (!client.retired) reply(pending.reply, ipc::bytes_of(pending.body));
}

void Manager::on_client_fault(const command::Notice& notice, TimeNs now) {
  Client* client = client_by_id(notice.client_id);
  if (client == nullptr || client->retired) return;
  cut_off(*client,
          fmt::format("broke the command queue's rules: {}", ipc::text_of(notice.reason.detail)),
          now);
}

void Manager::check_memory_faults(TimeNs now) {
  if (now < next_fault_check_) return;
  next_fault_check_ = now + kFaultCheckIntervalNs;
  for (const auto& [id, client] : clients_) {
    bool hit = client->queue.was_hit();
    for (const auto& [handle, memory] : client->memories) hit = hit || memory.mapping.was_hit();
    if (!hit || client->retired) continue;
    cut_off(*client, "took pages out of the memory that it shares with the daemon", now);
    return;  // the map may have changed: the others are looked at next time
  }
}

void Manager::retire(Client& client, const std::string& why, TimeNs now, AbortCode code) {
  if (client.retired) return;
  spdlog::info("client {} (pid {}) {}", client.id, client.peer.pid, why);
  client.retired = true;
  client.open_reply.reset();
  for (auto& [handle, memory] : client.memories) memory.reply.reset();
  for (const std::uint32_t handle : client.to_make) client.memories.erase(handle);
  client.to_make.clear();
  if (client.making != nullptr) client.making->cancelled.store(true, std::memory_order_relaxed);
  watch_process(client, now);
  // The order is the lane's contract: groups end first, then what they referred to goes.
  for (const std::uint64_t handle : group_handles()) {
    Group* group = group_by_handle(handle);
    Member* member = group == nullptr ? nullptr : group->member_of(client.id);
    if (member != nullptr) client_gone(*group, *member, code, why, now);
  }
  for (const auto& [handle, memory] : client.memories) remove_memory(client, handle);
  command::Request remove;
  remove.type = command::RequestType::kRemoveClient;
  remove.client_id = client.id;
  request(kCommandLane, remove);
}

void Manager::cut_off(Client& client, const std::string& why, TimeNs now) {
  const ipc::ConnectionId connection = client.connection;
  ipc::MessageHeader header;
  header.type = static_cast<std::uint16_t>(ipc::MessageType::kCutOff);
  sink_.send(connection, header, ipc::bytes_of(ipc::error_body(why)), {});
  retire(client, why, now);
  sink_.hang_up(connection);
}

void Manager::forget_if_gone(std::uint32_t client_id) {
  const Client* client = client_by_id(client_id);
  if (client != nullptr && client->removed && client->memories.empty()) clients_.erase(client_id);
}

Client* Manager::client_of(ipc::ConnectionId connection) noexcept {
  for (const auto& [id, client] : clients_) {
    if (client->connection == connection && !client->retired) return client.get();
  }
  return nullptr;
}

Client* Manager::client_by_id(std::uint32_t client_id) noexcept {
  const auto found = clients_.find(client_id);
  return found == clients_.end() ? nullptr : found->second.get();
}

}  // namespace gradwire::control
