// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/system_error.h"
#include "ipc/stale_socket.h"

namespace gradwire::ipc {
namespace {

/// Messages taken from one connection per round, and connections accepted.
constexpr int kMessagesPerRound = 16;
constexpr std::chrono::seconds kBetweenComplaints(60);

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address = {};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("control socket path '{}' has {} bytes, must have 1 to {}", path,
                            path.size(), sizeof(address.sun_path) - 1));
  }
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

UniqueFd make_socket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// One daemon per path: the lock lasts as long as the descriptor, however the process ends.
/// The file stays behind, since removing a lock file would let two processes hold different ones.
Result<UniqueFd> take_lock(const std::string& path) {
  UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return system_error(fmt::format("opening the lock file {}", path));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    const ssize_t got = ::pread(lock.get(), pid, sizeof(pid) - 1, 0);
    return fail(
        ErrorCode::kBusy,
        fmt::format("another daemon (pid {}) holds the lock {}: stop it, or use another path",
                    got > 0 ? std::string(pid, ::strcspn(pid, "\n")) : "unknown", path));
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return system_error(fmt::format("writing the lock file {}", path));
  }
  return lock;
}

}  // namespace

Result<std::unique_ptr<ControlServer>> ControlServer::create(const ControlServerOptions& options) {
  std::unique_ptr<ControlServer> server(new ControlServer(options));
  if (auto ok = server->listen(); !ok) return tl::unexpected(ok.error());
  return server;
}

Result<void> ControlServer::listen() {
  const std::string& path = options_.path;
  const auto address = address_of(path);
  if (!address) return tl::unexpected(address.error());
  auto lock = take_lock(path + ".lock");
  if (!lock) return tl::unexpected(lock.error());
  lock_ = std::move(*lock);
  // We have the lock, so a socket at the path is a dead instance's, unless somebody answers there.
  if (auto ok = remove_stale_socket(path); !ok) return tl::unexpected(ok.error());
  listener_ = make_socket();
  if (!listener_) return system_error("creating the control socket");
  if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) !=
      0) {
    return system_error(fmt::format("binding the control socket to {}", path));
  }
  bound_ = true;
  // Nobody can connect before listen(), so the permissions are in place in time.
  if ((options_.owner || options_.group) &&
      ::chown(path.c_str(), options_.owner.value_or(static_cast<uid_t>(-1)),
              options_.group.value_or(static_cast<gid_t>(-1))) != 0) {
    return system_error(fmt::format("setting the owner of {}", path));
  }
  if (::chmod(path.c_str(), options_.mode) != 0) {
    return system_error(fmt::format("setting mode {:o} of {}", options_.mode, path));
  }
  if (::listen(listener_.get(), 64) != 0) {
    return system_error(fmt::format("listening on {}", path));
  }
  return {};
}

ControlServer::~ControlServer() {
  if (bound_) ::unlink(options_.path.c_str());
}

void ControlServer::wait(int timeout_ms) {
  std::vector<pollfd>& fds = polled_.fds;
  std::vector<ConnectionId>& ids = polled_.ids;
  fds.clear();
  ids.clear();
  // A connection that is not accepted stays in the listener's queue and would end every wait at
  // once.
  const auto paused = std::chrono::ceil<std::chrono::milliseconds>(accept_again_ - Clock::now());
  const bool accepts = paused.count() <= 0;
  fds.push_back({accepts ? listener_.get() : -1, POLLIN, 0});
  if (!accepts && (timeout_ms < 0 || paused.count() < timeout_ms)) {
    timeout_ms = static_cast<int>(paused.count());
  }
  for (const auto& [id, connection] : connections_) {
    const auto events = static_cast<short>(POLLIN | (connection.queue.empty() ? 0 : POLLOUT));
    fds.push_back({connection.socket.get(), events, 0});
    ids.push_back(id);
    if (connection.closing || connection.broken) timeout_ms = 0;
  }
  fds.push_back({wake_fd_, POLLIN, 0});  // last; poll(2) ignores a negative one
  // EINTR: the caller comes again.
  polled_.any = ::poll(fds.data(), fds.size(), timeout_ms) >= 0;
}

void ControlServer::serve() {
  has_more_ = false;
  if (!std::exchange(polled_.any, false)) return;
  std::vector<ConnectionId> readable;
  for (std::size_t i = 0; i < polled_.ids.size(); ++i) {
    const short seen = polled_.fds[i + 1].revents;
    if ((seen & POLLOUT) != 0) flush(connections_.at(polled_.ids[i]));
    if ((seen & (POLLIN | POLLHUP | POLLERR)) != 0) readable.push_back(polled_.ids[i]);
  }
  receive_in_turn(readable);
  close_finished();
  close_silent();
  if ((polled_.fds[0].revents & POLLIN) != 0) accept_all();
}

void ControlServer::receive_in_turn(const std::vector<ConnectionId>& readable) {
  std::map<uid_t, Turn> users;
  for (const ConnectionId id : readable) {
    Turn& turn = users[connections_.at(id).peer.uid];
    turn.uid = connections_.at(id).peer.uid;
    turn.connections.push_back(id);
  }
  std::erase_if(last_of_, [&](const auto& entry) { return !users.contains(entry.first); });
  const std::uint64_t round_end = steps_ + options_.steps_of_round;
  auto next = users.upper_bound(last_user_);
  for (std::size_t left = users.size(); left > 0; --left, ++next) {
    if (next == users.end()) next = users.begin();
    if (steps_ >= round_end) {
      has_more_ = true;
      return;
    }
    last_user_ = next->first;
    serve_user(next->second, round_end);
  }
}

void ControlServer::serve_user(Turn& turn, std::uint64_t round_end) {
  // Begins after the connection that was last when the user's steps ended.
  if (const auto last = last_of_.find(turn.uid); last != last_of_.end()) {
    const auto next = std::ranges::upper_bound(turn.connections, last->second);
    std::rotate(turn.connections.begin(), next, turn.connections.end());
  }
  const std::uint64_t end = std::min(round_end, steps_ + options_.steps_of_user);
  for (int i = 0; i < kMessagesPerRound && !turn.connections.empty(); ++i) {
    std::vector<ConnectionId> more;
    for (const ConnectionId id : turn.connections) {
      if (steps_ >= end) {
        has_more_ = true;
        return;
      }
      last_of_[turn.uid] = id;
      if (receive_one(id)) more.push_back(id);
    }
    turn.connections = std::move(more);
  }
  has_more_ = has_more_ || !turn.connections.empty();
}

void ControlServer::accept_all() {
  for (int i = 0; i < kMessagesPerRound; ++i) {
    Connection connection;
    connection.socket =
        UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection.socket) {
      if (errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EINTR) pause_accepting(errno);
      return;
    }
    ucred peer = {};
    socklen_t bytes = sizeof(peer);
    if (::getsockopt(connection.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
      continue;
    }
    connection.peer = {peer.pid, peer.uid};
    connection.heard = Clock::now();
    if (const std::string why = no_room_for(peer.uid); !why.empty()) {
      ++refused_;
      MessageHeader header;
      header.error_code = static_cast<std::uint32_t>(ErrorCode::kResourceExhausted);
      const ErrorBody body = error_body(why);
      // The connection is closed whether or not the reason arrives.
      static_cast<void>(send_message(connection.socket.get(), header, bytes_of(body)));
      continue;
    }
    connections_.emplace(next_id_++, std::move(connection));
  }
}

void ControlServer::pause_accepting(int error) {
  const Clock::time_point now = Clock::now();
  accept_again_ = now + options_.accept_pause;
  if (now < next_complaint_) return;
  next_complaint_ = now + kBetweenComplaints;
  if (!callbacks_.on_trouble) return;
  callbacks_.on_trouble(fmt::format(
      "a client is waiting at {} and cannot be accepted: {}. The daemon tries again every {} ms "
      "and when a connection closes ({} are open). Raise the daemon's limit of open files "
      "(LimitNOFILE= of the unit, ulimit -n)",
      options_.path, std::strerror(error), options_.accept_pause.count(), connections_.size()));
}

std::string ControlServer::no_room_for(uid_t uid) const {
  const std::size_t reserve = uid == 0 || uid == ::geteuid() ? options_.reserved_for_root : 0;
  const auto of_user = static_cast<std::size_t>(std::ranges::count_if(
      connections_, [uid](const auto& entry) { return entry.second.peer.uid == uid; }));
  if (of_user >= options_.max_of_user + reserve) {
    return fmt::format(
        "user {} already has {} connections to the daemon, and limits.user_clients = {}: close "
        "one, or raise limits.user_clients in the daemon's configuration",
        uid, of_user, options_.max_of_user);
  }
  if (connections_.size() >= options_.max_connections + reserve) {
    return fmt::format(
        "the daemon already has {} connections, and limits.clients = {}: close one, or raise "
        "limits.clients in the daemon's configuration",
        connections_.size(), options_.max_connections);
  }
  return {};
}

void ControlServer::close_silent() {
  if (options_.silence.count() == 0) return;
  const Clock::time_point bound = Clock::now() - options_.silence;
  for (auto& [id, connection] : connections_) {
    if (connection.kept || connection.closing || connection.heard > bound) continue;
    ++refused_;
    MessageHeader header;
    header.error_code = static_cast<std::uint32_t>(ErrorCode::kTimedOut);
    const ErrorBody body =
        error_body(fmt::format("the connection sent nothing for {} ms before it opened a client, "
                               "and timeouts.open_ms = {}",
                               options_.silence.count(), options_.silence.count()));
    send(id, header, bytes_of(body), {});
    connection.closing = true;
  }
}

bool ControlServer::receive_one(ConnectionId id) {
  // Looked up each time: a callback may hang up, but never removes a connection.
  Connection& connection = connections_.at(id);
  if (connection.closing || connection.broken) return false;
  Message message;
  const auto status = receive_message(connection.socket.get(), message);
  if (status && *status == SocketStatus::kWouldBlock) return false;
  ++served_;
  steps_ += kMessageSteps;
  if (!status) {
    ++faults_;
    MessageHeader header;
    header.type = message.header.magic == kControlMagic ? message.header.type : 0;
    header.request_id = message.header.magic == kControlMagic ? message.header.request_id : 0;
    header.error_code = static_cast<std::uint32_t>(status.error().code);
    const ErrorBody body = error_body(status.error().message);
    send(id, header, bytes_of(body), {});
    hang_up(id);
    return false;
  }
  if (*status == SocketStatus::kClosed) {
    connection.broken = true;
    return false;
  }
  connection.heard = Clock::now();
  if (!callbacks_.on_message) return true;
  const std::uint64_t before = callbacks_.steps ? callbacks_.steps() : 0;
  const PeerCredentials peer = connection.peer;
  callbacks_.on_message(id, peer, std::move(message));
  if (callbacks_.steps) steps_ += callbacks_.steps() - before;
  return true;
}

void ControlServer::flush(Connection& connection) {
  while (!connection.queue.empty() && !connection.broken) {
    const Queued& next = connection.queue.front();
    int fds[kMaxMessageFds];
    std::size_t count = 0;
    for (const UniqueFd& fd : next.fds) fds[count++] = fd.get();
    const auto status =
        send_message(connection.socket.get(), next.header, next.body, std::span(fds, count));
    if (status && *status == SocketStatus::kWouldBlock) return;
    if (!status || *status == SocketStatus::kClosed) connection.broken = true;
    connection.queue.pop_front();
  }
}

void ControlServer::close_finished() {
  std::vector<ConnectionId> ended;
  for (const auto& [id, connection] : connections_) {
    if (!connection.closing && !connection.broken) continue;
    if (ended.size() == kEndsPerRound) {
      has_more_ = true;
      break;
    }
    ended.push_back(id);
  }
  for (const ConnectionId id : ended) {
    ++served_;
    steps_ += kMessageSteps;
    const std::uint64_t before = callbacks_.steps ? callbacks_.steps() : 0;
    connections_.erase(id);
    accept_again_ = {};  // its descriptor is free
    if (callbacks_.on_hangup) callbacks_.on_hangup(id);
    if (callbacks_.steps) steps_ += callbacks_.steps() - before;
  }
}

void ControlServer::send(ConnectionId connection, const MessageHeader& header,
                         std::span<const std::byte> body, std::vector<UniqueFd> fds) {
  const auto found = connections_.find(connection);
  if (found == connections_.end() || found->second.closing || found->second.broken) return;
  Connection& to = found->second;
  if (to.queue.size() >= options_.max_queued_messages || fds.size() > kMaxMessageFds) {
    to.broken = true;
    return;
  }
  to.queue.push_back({header, {body.begin(), body.end()}, std::move(fds)});
  flush(to);
}

void ControlServer::hang_up(ConnectionId connection) {
  const auto found = connections_.find(connection);
  if (found != connections_.end()) found->second.closing = true;
}

void ControlServer::keep(ConnectionId connection) {
  const auto found = connections_.find(connection);
  if (found != connections_.end()) found->second.kept = true;
}

}  // namespace gradwire::ipc
