// SPDX-License-Identifier: BSD-3-Clause
// Connections of the control server: who is accepted, who is refused, and how they end.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "ipc/control_server.h"

namespace gradwire::ipc {
namespace {

constexpr int kAcceptedPerRound = 16;
/// Until then it is a flood that is being dealt with.
constexpr std::chrono::seconds kFullForLong(1);

}  // namespace

void ControlServer::accept_all() {
  for (int i = 0; i < kAcceptedPerRound && accepts_.has(1, now_ns()); ++i) {
    // What is refused below may have to wait.
    if (closers_ != nullptr && closers_->full()) return;
    Connection connection;
    connection.socket =
        UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection.socket) {
      if (errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EINTR) pause_accepting(errno);
      return;
    }
    accepts_.take(1, now_ns());
    ucred peer = {};
    socklen_t bytes = sizeof(peer);
    if (::getsockopt(connection.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) {
      end(connection);
      continue;
    }
    connection.peer = {peer.pid, peer.uid};
    connection.heard = options_.now();
    count(peer.uid, kMessageSteps);
    if (const std::string why = no_room_for(peer.uid); !why.empty()) {
      ++refused_;
      MessageHeader header;
      header.error_code = static_cast<std::uint32_t>(ErrorCode::kResourceExhausted);
      const ErrorBody body = error_body(why);
      // The connection is closed whether or not the reason arrives.
      static_cast<void>(send_message(connection.socket.get(), header, bytes_of(body)));
      end(connection);
      continue;
    }
    connections_.emplace(next_id_++, std::move(connection));
  }
}

void ControlServer::end(Connection& connection) {
  // Of most nothing is left that could take its time. Of others messages hold descriptors that
  // nobody received.
  if (closers_ != nullptr && !end_connection(connection.socket.get())) {
    closers_->close(connection.peer.uid, std::move(connection.socket), Closers::Kind::kConnection);
  }
  connection.socket.reset();
}

void ControlServer::pause_accepting(int error) {
  const Clock::time_point now = options_.now();
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

void ControlServer::tell_if_full() {
  const Clock::time_point now = options_.now();
  if (closers_ == nullptr || !closers_->full()) {
    full_since_.reset();
    return;
  }
  if (!full_since_) full_since_ = now;
  if (now - *full_since_ < kFullForLong || now < next_full_complaint_) return;
  next_full_complaint_ = now + kBetweenComplaints;
  if (!callbacks_.on_trouble) return;
  callbacks_.on_trouble(fmt::format(
      "nobody is accepted at {}: {} connections that ended or were refused wait to be closed, most "
      "of user {}, and have done so for {} ms. That user sent descriptors in them that take long "
      "to close, as of a large file without a name or of a file system that does not answer. End "
      "what that user runs, and see to the file system",
      options_.path, Closers::kConnections, closers_->slowest(),
      std::chrono::duration_cast<std::chrono::milliseconds>(now - *full_since_).count()));
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

}  // namespace gradwire::ipc
