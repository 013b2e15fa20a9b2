// SPDX-License-Identifier: BSD-3-Clause
#include "ipc/control_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/system_error.h"
#include "ipc/path_lock.h"
#include "ipc/stale_socket.h"

namespace gradwire::ipc {
namespace {

/// Messages taken from one connection per round.
constexpr int kMessagesPerRound = 16;

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
  auto lock = take_path_lock(path + ".lock");
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
  for (auto& [id, connection] : connections_) end(connection);
}

void ControlServer::wait(int timeout_ms) {
  std::vector<pollfd>& fds = polled_.fds;
  std::vector<ConnectionId>& ids = polled_.ids;
  fds.clear();
  ids.clear();
  // A connection that is not accepted stays in the listener's queue and would end every wait at
  // once.
  const TimeNs now = now_ns();
  const TimeNs accept_at = std::max<TimeNs>(
      std::chrono::nanoseconds(accept_again_.time_since_epoch()).count(), accepts_.when(1));
  // Closers wakes this thread by the wake fd when it is not full any more.
  const bool full = closers_ != nullptr && closers_->full();
  const bool accepts = accept_at <= now && !full;
  fds.push_back({accepts ? listener_.get() : -1, POLLIN, 0});
  if (accept_at > now) timeout_ms = sooner(timeout_ms, accept_at);
  for (const auto& [id, connection] : connections_) {
    const uid_t uid = connection.peer.uid;
    short events = connection.queue.empty() ? 0 : POLLOUT;
    if (must_wait(uid, now)) {
      if (const TimeNs at = user_steps_.goes_on_at(uid); at != kNever) {
        timeout_ms = sooner(timeout_ms, at);
      }
    } else {
      events |= POLLIN;
    }
    // poll(2) tells of an end whatever it was asked, so it is asked nothing of who waits.
    fds.push_back({events == 0 ? -1 : connection.socket.get(), events, 0});
    ids.push_back(id);
    if (connection.closing || connection.broken) timeout_ms = 0;
  }
  fds.push_back({wake_fd_, POLLIN, 0});  // last; poll(2) ignores a negative one
  // EINTR: the caller comes again.
  polled_.any = ::poll(fds.data(), fds.size(), timeout_ms) >= 0;
}

int ControlServer::sooner(int timeout_ms, TimeNs until) const {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::nanoseconds(until - now_ns()));
  const int ms = static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, INT_MAX));
  return timeout_ms < 0 ? ms : std::min(timeout_ms, ms);
}

void ControlServer::serve() {
  has_more_ = false;
  if (!std::exchange(polled_.any, false)) return;
  std::vector<ConnectionId> readable;
  for (std::size_t i = 0; i < polled_.ids.size(); ++i) {
    const auto [fd, asked, seen] = polled_.fds[i + 1];
    Connection& connection = connections_.at(polled_.ids[i]);
    const bool ended = (seen & (POLLHUP | POLLERR)) != 0;
    if ((asked & POLLIN) == 0) connection.heard = options_.now();  // nobody listened
    if ((seen & POLLOUT) != 0 || (ended && !connection.queue.empty())) flush(connection);
    if ((asked & POLLIN) != 0 && ((seen & POLLIN) != 0 || ended)) {
      connection.heard = options_.now();
      readable.push_back(polled_.ids[i]);
    }
  }
  receive_in_turn(readable);
  close_finished();
  close_silent();
  if ((polled_.fds[0].revents & POLLIN) != 0) accept_all();
  tell_if_full();
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
  if (!users.empty()) charge((next == users.end() ? users.begin() : next)->first, kRoundSteps);
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
      if (must_wait(turn.uid, now_ns())) return;
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

void ControlServer::close_silent() {
  if (options_.silence.count() == 0) return;
  const Clock::time_point bound = options_.now() - options_.silence;
  for (auto& [id, connection] : connections_) {
    if (connection.kept || connection.owed > 0 || connection.closing) continue;
    if (connection.heard > bound) continue;
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
  Connection& connection = connections_.at(id);
  if (connection.closing || connection.broken) return false;
  Message message;
  const auto status = receive_message(connection.socket.get(), message);
  if (status && *status == SocketStatus::kWouldBlock) return false;
  ++served_;
  const PeerCredentials peer = connection.peer;
  count(peer.uid, kMessageSteps);
  const bool taken = status && *status == SocketStatus::kDone;
  if (!status) {
    refuse(id, message.header, status.error());
  } else if (!taken) {
    connection.broken = true;
  } else if (callbacks_.on_message) {
    if (message.header.request_id != kNoReply) ++connection.owed;
    const std::uint64_t before = callbacks_.steps ? callbacks_.steps() : 0;
    callbacks_.on_message(id, peer, message);
    if (callbacks_.steps) count(peer.uid, callbacks_.steps() - before);
  }
  clear_if_secret(message.header, message.body);
  for (UniqueFd& fd : message.fds) close_elsewhere(peer.uid, std::move(fd));
  return taken;
}

void ControlServer::refuse(ConnectionId id, const MessageHeader& received, const Error& error) {
  ++faults_;
  MessageHeader header;
  header.type = received.magic == kControlMagic ? received.type : 0;
  header.request_id = received.magic == kControlMagic ? received.request_id : 0;
  header.error_code = static_cast<std::uint32_t>(error.code);
  const ErrorBody body = error_body(error.message);
  send(id, header, bytes_of(body), {});
  hang_up(id);
}

void ControlServer::count(uid_t uid, std::uint64_t steps) {
  steps_ += steps;
  charge(uid, steps);
}

void ControlServer::charge(uid_t uid, std::uint64_t steps) {
  if (user_steps_.take(uid, steps, now_ns())) tell_of_wait(uid);
}

void ControlServer::tell_of_wait(uid_t uid) {
  const Clock::time_point now = options_.now();
  std::erase_if(next_complaint_of_, [now](const auto& entry) { return entry.second <= now; });
  if (!callbacks_.on_trouble || next_complaint_of_.contains(uid)) return;
  next_complaint_of_[uid] = now + kBetweenComplaints;
  callbacks_.on_trouble(fmt::format(
      "user {} has used up its share of the control thread: {} steps at once and then {} a second, "
      "a step being about a microsecond's work. Its requests wait for some milliseconds each time; "
      "its ops do not. Something of that user joins groups, opens clients or asks for the status "
      "again and again",
      uid, UserSteps::kSaved, UserSteps::kPerSecond));
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
    connection.queued_bytes -= next.body.size();
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
    const std::uint64_t before = callbacks_.steps ? callbacks_.steps() : 0;
    const uid_t uid = connections_.at(id).peer.uid;
    end(connections_.at(id));
    connections_.erase(id);
    accept_again_ = {};  // its descriptor is free
    if (callbacks_.on_hangup) callbacks_.on_hangup(id);
    count(uid, kMessageSteps + (callbacks_.steps ? callbacks_.steps() - before : 0));
  }
}

void ControlServer::send(ConnectionId connection, const MessageHeader& header,
                         std::span<const std::byte> body, std::vector<UniqueFd> fds) {
  const auto found = connections_.find(connection);
  if (found == connections_.end() || found->second.closing || found->second.broken) return;
  Connection& to = found->second;
  if (header.request_id != kNoReply && to.owed > 0) {
    --to.owed;
    to.heard = options_.now();
  }
  // One message may be larger than all that may wait.
  const bool full = !to.queue.empty() && to.queued_bytes + body.size() > kQueuedBytes;
  if (full || to.queue.size() >= options_.max_queued_messages || fds.size() > kMaxMessageFds) {
    to.broken = true;
    return;
  }
  to.queued_bytes += body.size();
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
