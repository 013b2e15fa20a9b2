// SPDX-License-Identifier: BSD-3-Clause
// Clients: how one opens, and what happens when it has gone.
#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "control/bodies.h"
#include "control/manager.h"
#include "ipc/doorbell.h"

namespace gradwire::control {
namespace {

/// Makes a pair of sockets for wake-ups: what is written to one end, 8 bytes at a time, is read
/// from the other. Each end has its own O_NONBLOCK, unlike two descriptors of one eventfd.
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
  info.checksum = checksum_of(info);
  return info;
}

void Manager::open(const PendingReply& to, const ipc::PeerCredentials& peer,
                   std::span<const std::byte> body, TimeNs now) {
  const auto wanted = ipc::body_as<ipc::OpenRequest>(body);
  if (!wanted) return reply_error(to, wrong_size<ipc::OpenRequest>(to.type, body));
  if (wanted->abi_version != 1) {
    return reply_error(to, {ErrorCode::kUnsupported,
                            fmt::format("the client speaks version {} of the control protocol, and "
                                        "this daemon speaks 1: install the library and the daemon "
                                        "of one release",
                                        wanted->abi_version)});
  }
  if (stop_ != StopState::kRunning) {
    return reply_error(to, {ErrorCode::kUnavailable, "the daemon is stopping"});
  }
  if (client_of(to.connection) != nullptr) {
    return reply_error(to, {ErrorCode::kBusy, "this connection has already been opened"});
  }
  if (const auto room = room_for_client(peer.uid); !room) return reply_error(to, room.error());
  auto made = make_client(peer);
  if (!made) return reply_error(to, made.error());
  Client& client = **made;
  client.connection = to.connection;
  client.since = now;
  client.open_reply = to;
  clients_.emplace(client.id, std::move(*made));
  client_ids_[client.connection] = client.id;
  ++clients_of_user_[peer.uid];
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
                fmt::format("the daemon already has {} clients, and limits.clients = {}: close "
                            "one, or raise limits.clients in the daemon's configuration",
                            clients_.size(), limits.clients));
  }
  const auto found = clients_of_user_.find(uid);
  const std::uint32_t of_user = found == clients_of_user_.end() ? 0 : found->second;
  if (of_user >= limits.clients_per_user) {
    return fail(ErrorCode::kResourceExhausted,
                fmt::format("user {} already has {} clients, and limits.user_clients = {}: close "
                            "one, or raise limits.user_clients in the daemon's configuration",
                            uid, of_user, limits.clients_per_user));
  }
  return {};
}

Result<std::unique_ptr<Client>> Manager::make_client(const ipc::PeerCredentials& peer) {
  auto client = std::make_unique<Client>();
  client->peer = peer;
  client->id = unused_client_id();
  ipc::SharedMemoryOptions options;
  options.name = fmt::format("gradwire-queue-{}", peer.pid);
  options.bytes = sizeof(ipc::QueueRegion);
  options.numa_node = options_.daemon.numa_node;
  options.pages = options_.pages;
  options.owner = client->id;
  auto queue = ipc::SharedMemory::create(options);
  if (!queue) return tl::unexpected(queue.error());
  client->queue = std::move(*queue);
  ipc::QueueRegion* region = ipc::create_queue_region(client->queue.data(), client->queue.bytes());
  client->doorbell = ipc::make_doorbell();
  if (!client->doorbell) {
    return fail(ErrorCode::kSystem, fmt::format("eventfd: {}", std::strerror(errno)));
  }
  auto completion = make_wakeup();
  if (!completion) return tl::unexpected(completion.error());
  std::tie(client->completion, client->client_completion) = std::move(*completion);
  client->port.client_id = client->id;
  client->port.user = peer.uid;
  client->port.queue = ipc::DaemonQueue(region);
  client->port.completion_fd = client->completion.get();
  client->port.doorbell_fd = client->doorbell.get();
  return client;
}

std::uint32_t Manager::unused_client_id() {
  return next_unused(last_client_id_, [this](std::uint32_t id) {
    // A group keeps the ids of members that have gone until its last member has left.
    return clients_.contains(id) || std::ranges::any_of(groups_, [id](const auto& entry) {
             return entry.second->member_of(id) != nullptr;
           });
  });
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
  fds.push_back(client.doorbell.duplicate());
  fds.push_back(std::move(client.client_completion));
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

void Manager::on_client_fault(const command::Notice& notice, TimeNs now) {
  Client* client = client_by_id(notice.client_id);
  if (client == nullptr || client->retired) return;
  cut_off(*client, std::string(ipc::text_of(notice.reason.detail)), now);
}

void Manager::retire(Client& client, const std::string& why, TimeNs now, AbortCode code) {
  if (client.retired) return;
  spdlog::info("client {} (pid {}) {}", client.id, client.peer.pid, why);
  client.retired = true;
  client_ids_.erase(client.connection);
  steps_ += groups_.size() + client.memories.size();
  client.open_reply.reset();
  client.client_completion.reset();
  for (auto& [handle, memory] : client.memories) memory.reply.reset();
  for (const std::uint32_t handle : client.to_make) client.memories.erase(handle);
  client.to_make.clear();
  if (client.making != nullptr) client.making->cancelled.store(true, std::memory_order_relaxed);
  watch_process(client, now);
  // The lane requires this order: groups end first, then what they referred to is removed.
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

bool Manager::is_gone(const Client& client) {
  pollfd end{client.completion.get(), 0, 0};
  return ::poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
}

void Manager::forget_if_gone(std::uint32_t client_id) {
  const Client* client = client_by_id(client_id);
  if (client == nullptr || !client->removed || !client->memories.empty()) return;
  if (is_gone(*client) || stop_ != StopState::kRunning) forget_client(client_id);
}

void Manager::forget_client(std::uint32_t client_id) {
  const auto found = clients_.find(client_id);
  const auto of_user = clients_of_user_.find(found->second->peer.uid);
  if (--of_user->second == 0) clients_of_user_.erase(of_user);
  discard(found->second->peer.uid, std::move(found->second->queue), false, {});
  clients_.erase(found);
}

Client* Manager::client_of(ipc::ConnectionId connection) noexcept {
  const auto found = client_ids_.find(connection);
  return found == client_ids_.end() ? nullptr : client_by_id(found->second);
}

Client* Manager::client_by_id(std::uint32_t client_id) noexcept {
  const auto found = clients_.find(client_id);
  return found == clients_.end() ? nullptr : found->second.get();
}

}  // namespace gradwire::control
