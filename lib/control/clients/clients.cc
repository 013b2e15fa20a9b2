// SPDX-License-Identifier: BSD-3-Clause
#include "control/clients/clients.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "control/bodies.h"
#include "control/room.h"
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

Clients::Clients(const ManagerOptions& options, std::uint8_t lanes, ClientTable& table,
                 const GroupTable& groups, GroupEnds& ends, Memories& memories,
                 LaneRequests& requests, Replies& replies, WorkMeter& work,
                 const Stopping& stopping)
    : options_(options),
      lanes_(lanes),
      table_(table),
      groups_(groups),
      ends_(ends),
      memories_(memories),
      requests_(requests),
      replies_(replies),
      work_(work),
      stopping_(stopping) {}

void Clients::open(const PendingReply& to, const ipc::PeerCredentials& peer,
                   std::span<const std::byte> body, TimeNs now) {
  const auto wanted = ipc::body_as<ipc::OpenRequest>(body);
  if (!wanted) return replies_.error(to, wrong_size<ipc::OpenRequest>(to.type, body));
  if (wanted->abi_version != 1) {
    return replies_.error(to,
                          {ErrorCode::kUnsupported,
                           fmt::format("the client speaks version {} of the control protocol, and "
                                       "this daemon speaks 1: install the library and the daemon "
                                       "of one release",
                                       wanted->abi_version)});
  }
  if (!stopping_.running()) {
    return replies_.error(to, {ErrorCode::kUnavailable, "the daemon is stopping"});
  }
  if (table_.of(to.connection) != nullptr) {
    return replies_.error(to, {ErrorCode::kBusy, "this connection has already been opened"});
  }
  if (const auto room = room_for(peer.uid); !room) return replies_.error(to, room.error());
  auto made = make(peer);
  if (!made) return replies_.error(to, made.error());
  Client& client = **made;
  client.connection = to.connection;
  client.since = now;
  client.open_reply = to;
  table_.add(std::move(*made));
  replies_.keep(to.connection);
  command::Request add;
  add.type = command::RequestType::kAddClient;
  add.client_id = client.id;
  add.client = &client.port;
  requests_.send(LaneRequests::kCommandLane, add);
}

Result<void> Clients::room_for(uid_t uid) const {
  return check_room({.what = "clients",
                     .key = "limits.clients",
                     .user_key = "limits.user_clients",
                     .give_up = "close",
                     .count = static_cast<std::uint32_t>(table_.size()),
                     .limit = options_.limits.clients,
                     .of_user = table_.of_user(uid),
                     .limit_of_user = options_.limits.clients_per_user},
                    uid);
}

Result<std::unique_ptr<Client>> Clients::make(const ipc::PeerCredentials& peer) {
  auto client = std::make_unique<Client>();
  client->peer = peer;
  client->id = unused_id();
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

std::uint32_t Clients::unused_id() {
  return next_unused(last_id_, options_.last_id, [this](std::uint32_t id) {
    // A group keeps the ids of members that have gone until its last member has left.
    return table_.has(id) || std::ranges::any_of(groups_.all(), [id](const auto& entry) {
             return entry.second->member_of(id) != nullptr;
           });
  });
}

void Clients::on_added(Client& client) {
  if (client.retired || !client.open_reply) return;
  ipc::OpenReply body;
  body.incarnation = options_.daemon.incarnation;
  body.client_id = client.id;
  body.lanes = lanes_;
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
      replies_.error(to,
                     {ErrorCode::kResourceExhausted, "the daemon has no file descriptors left"});
      return replies_.hang_up(client.connection);
    }
  }
  replies_.send(to, ipc::bytes_of(body), std::move(fds));
  spdlog::info("client {} opened: pid {}, uid {}", client.id, client.peer.pid, client.peer.uid);
}

void Clients::on_fault(const command::Notice& notice, TimeNs now) {
  Client* client = table_.by_id(notice.client_id);
  if (client == nullptr || client->retired) return;
  cut_off(*client, std::string(ipc::text_of(notice.reason.detail)), now);
}

void Clients::retire(Client& client, const std::string& why, TimeNs now, AbortCode code) {
  if (client.retired) return;
  spdlog::info("client {} (pid {}) {}", client.id, client.peer.pid, why);
  table_.retire(client);
  work_.add(groups_.size() + client.memories.size());
  client.open_reply.reset();
  client.client_completion.reset();
  client.job_keys.clear();
  memories_.retire(client, now);
  // The lane requires this order: groups end first, then what they referred to is removed.
  for (const std::uint64_t handle : groups_.handles()) {
    Group* group = groups_.by_handle(handle);
    Member* member = group == nullptr ? nullptr : group->member_of(client.id);
    if (member != nullptr) ends_.on_client_gone(*group, *member, code, why, now);
  }
  memories_.remove_all(client);
  command::Request remove;
  remove.type = command::RequestType::kRemoveClient;
  remove.client_id = client.id;
  requests_.send(LaneRequests::kCommandLane, remove);
}

void Clients::cut_off(Client& client, const std::string& why, TimeNs now) {
  const ipc::ConnectionId connection = client.connection;
  replies_.event(connection, ipc::MessageType::kCutOff, ipc::bytes_of(ipc::error_body(why)));
  retire(client, why, now);
  replies_.hang_up(connection);
}

}  // namespace gradwire::control
