// SPDX-License-Identifier: BSD-3-Clause
#include "client/connection.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

namespace gradwire::client {
namespace {

using namespace std::chrono_literals;

/// How often a client that only posts and tests checks whether the daemon has died.
constexpr std::chrono::nanoseconds kControlCheckInterval = 100ms;
/// The same of one that polls completion_fd(), which a message makes readable until it is taken.
constexpr std::chrono::nanoseconds kPolledCheckInterval = 1ms;
/// CUDA has no descriptor that tells when a stream has come to a point.
constexpr timespec kStreamCheckInterval{0, 50'000};

}  // namespace

Connection::Connection(std::string path, std::chrono::microseconds spin, ConnectionUser& user,
                       Counters& counters)
    : path_(std::move(path)), user_(user), queues_(counters), wait_policy_(spin) {}

Result<void> Connection::connect(Deadline deadline) {
  auto socket = connect_to_daemon(path_, deadline);
  if (!socket) return tl::unexpected(socket.error());
  socket_ = std::move(*socket);
  wake_fd_ = ipc::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_fd_) return fail(ErrorCode::kSystem, fmt::format("eventfd: {}", strerror(errno)));
  return {};
}

void Connection::abandon() noexcept {
  socket_.reset();
  wake_fd_.reset();
  queues_.abandon();
  poll_.abandon();
}

Result<void> Connection::check_alive() const {
  if (dead_) return tl::unexpected(dead_reason_);
  return {};
}

void Connection::die(ErrorCode code, std::string text) {
  if (dead_) return;
  dead_ = true;
  dead_reason_ = Error{code, std::move(text)};
  // The descriptor stays open for threads that poll it.
  ::shutdown(socket_.get(), SHUT_RDWR);
  pending_.clear();
  user_.on_death(code, dead_reason_.message);
  wake_all();
}

void Connection::wake_leader() noexcept {
  if (has_leader_) ::eventfd_write(wake_fd_.get(), 1);
}

void Connection::wake_all() noexcept {
  changed_.notify_all();
  wake_leader();
}

bool Connection::drain_completions() {
  if (dead_ || !queues_.is_open()) return false;
  user_.advance_streams();
  if (dead_) return false;
  if (poll_.is_open()) {
    // Emptied and armed before the queue is read, so that later completions wake this client.
    queues_.empty_completion_fd();
    queues_.queue().set_client_waits(true);
  }
  bool any = false;
  ipc::CompletionEntry entry;
  while (true) {
    const ipc::PopResult result = queues_.queue().pop_completion(entry);
    if (result == ipc::PopResult::kEmpty) break;
    if (result != ipc::PopResult::kEntry || !user_.on_completion(entry)) {
      die(ErrorCode::kUnavailable, fmt::format("the daemon at {} reported the end of an op that "
                                               "was not posted: the connection is closed",
                                               path_));
      return true;
    }
    any = true;
  }
  if (any) {
    wake_all();
  }
  return any;
}

bool Connection::drain_control() {
  bool any = false;
  last_control_check_ = Clock::now();
  while (!dead_) {
    ipc::Message message;
    const auto received = ipc::receive_message(socket_.get(), message);
    if (received && *received == ipc::SocketStatus::kWouldBlock) break;
    if (!received || *received == ipc::SocketStatus::kClosed) {
      // Ops that were completed before the daemon went away count as completed.
      drain_completions();
      if (refusal_) {
        die(refusal_->code, fmt::format("the daemon at {} hung up: {}", path_, refusal_->message));
        return true;
      }
      std::string text = fmt::format("the daemon at {} went away", path_);
      if (!cut_off_reason_.empty()) {
        text = fmt::format("the daemon at {} ended the connection: this client {}", path_,
                           cut_off_reason_);
      } else if (!received) {
        text += ": " + received.error().message;
      }
      die(ErrorCode::kUnavailable, std::move(text));
      return true;
    }
    dispatch(std::move(message));
    any = true;
  }
  if (any) {
    wake_all();
  }
  return any;
}

void Connection::drain_control_sometimes() {
  const auto interval = poll_.is_open() ? kPolledCheckInterval : kControlCheckInterval;
  if (Clock::now() - last_control_check_ >= interval) drain_control();
}

void Connection::dispatch(ipc::Message message) {
  if (message.header.request_id == 0) {
    refusal_ = ipc::error_of(message.header, message.body);
    if (refusal_) return;
    if (message.header.type == static_cast<std::uint16_t>(ipc::MessageType::kCutOff)) {
      if (const auto why = ipc::body_as<ipc::ErrorBody>(message.body)) {
        cut_off_reason_ = ipc::text_of(why->text);
      }
      return;
    }
    if (message.header.type != static_cast<std::uint16_t>(ipc::MessageType::kGroupAborted)) return;
    const auto event = ipc::body_as<ipc::GroupAbortedEvent>(message.body);
    if (event) user_.on_group_aborted(*event);
    return;
  }
  const auto it = pending_.find(message.header.request_id);
  if (it == pending_.end()) return;
  const RequestPtr request = std::move(it->second);
  pending_.erase(it);
  if (message.header.error_code == 0 && request->on_reply) {
    request->on_reply(message, request->abandoned);
  }
  request->on_reply = {};
  request->reply = std::move(message);
  request->done = true;
}

void Connection::sleep_as_leader(Lock& lock, Deadline deadline) {
  const auto slept = Clock::now().time_since_epoch();
  ring_if_due();
  if (queues_.is_open()) {
    queues_.queue().set_client_waits(true);
    if (queues_.queue().has_completion()) return;
  }
  has_leader_ = true;
  // poll() ignores entries below 0: before the client is open there is no completion descriptor.
  pollfd entries[3] = {{socket_.get(), POLLIN, 0},
                       {wake_fd_.get(), POLLIN, 0},
                       {queues_.completion_fd(), POLLIN, 0}};
  const bool waits_for_stream = user_.waits_for_streams();
  lock.unlock();
  if (waits_for_stream) {
    ::ppoll(entries, 3, &kStreamCheckInterval, nullptr);
  } else {
    ::poll(entries, 3, poll_timeout_ms(deadline));
  }
  lock.lock();
  has_leader_ = false;
  eventfd_t value;
  if (entries[1].revents != 0) ::eventfd_read(wake_fd_.get(), &value);
  if (entries[2].revents != 0) {
    // The daemon's time is CLOCK_MONOTONIC, as Clock's is.
    const std::chrono::nanoseconds rung(queues_.queue().woken_at_ns());
    wait_policy_.woke(slept, rung, Clock::now().time_since_epoch());
    queues_.empty_completion_fd();
  }
  if (!dead_ && queues_.is_open()) queues_.queue().set_client_waits(poll_.is_open());
  if (entries[0].revents != 0) drain_control();
  drain_completions();
  // Even if nothing came, because another waiting thread has to become the leader now.
  changed_.notify_all();
}

std::uint32_t Connection::next_request_id() noexcept {
  if (next_request_id_ == 0) next_request_id_ = 1;  // 0 marks events
  return next_request_id_++;
}

Result<ipc::SocketStatus> Connection::send(ipc::MessageType type, std::uint32_t request_id,
                                           std::span<const std::byte> body,
                                           std::span<const int> fds) {
  ipc::MessageHeader header;
  header.type = static_cast<std::uint16_t>(type);
  header.request_id = request_id;
  return ipc::send_message(socket_.get(), header, body, fds);
}

Result<RequestPtr> Connection::begin_request(Lock& lock, ipc::MessageType type,
                                             std::span<const std::byte> body, Deadline deadline,
                                             std::function<void(ipc::Message&, bool)> on_reply,
                                             std::span<const int> fds) {
  auto request = std::make_shared<PendingRequest>();
  request->type = type;
  request->on_reply = std::move(on_reply);
  const std::uint32_t id = next_request_id();
  while (true) {
    if (auto alive = check_alive(); !alive) return tl::unexpected(alive.error());
    // Before it is sent, since another thread may receive the answer.
    pending_[id] = request;
    const auto sent = send(type, id, body, fds);
    if (sent && *sent == ipc::SocketStatus::kDone) return request;
    pending_.erase(id);
    if (!sent) return tl::unexpected(sent.error());
    if (*sent == ipc::SocketStatus::kClosed) {
      drain_control();
      die(ErrorCode::kUnavailable, fmt::format("the daemon at {} went away", path_));
      continue;
    }
    if (Clock::now() >= deadline) {
      return fail(
          ErrorCode::kTimedOut,
          fmt::format(
              "the daemon at {} takes no requests: its socket has been full until the timeout",
              path_));
    }
    lock.unlock();
    pollfd entry{socket_.get(), POLLOUT, 0};
    ::poll(&entry, 1, std::min(poll_timeout_ms(deadline), 100));
    lock.lock();
  }
}

Result<void> Connection::await_request(Lock& lock, const RequestPtr& request, Deadline deadline,
                                       bool abandon) {
  wait_until(lock, deadline, [&] { return request->done || dead_; });
  if (!request->done) {
    if (dead_) return tl::unexpected(dead_reason_);
    request->abandoned = abandon;
    return fail(ErrorCode::kTimedOut, fmt::format("the daemon at {} did not answer '{}' in time",
                                                  path_, ipc::name_of(request->type)));
  }
  if (auto error = ipc::error_of(request->reply.header, request->reply.body)) {
    return tl::unexpected(std::move(*error));
  }
  return {};
}

void Connection::send_and_forget(ipc::MessageType type, std::span<const std::byte> body) {
  if (dead_) return;
  // With the number 0 it is not answered: an answer that nobody waits for would wake those who
  // poll.
  (void)send(type, 0, body);
}

Result<RequestPtr> Connection::request(Lock& lock, ipc::MessageType type,
                                       std::span<const std::byte> body, Deadline deadline) {
  auto request = begin_request(lock, type, body, deadline);
  if (!request) return request;
  if (auto done = await_request(lock, *request, deadline, true); !done) {
    return tl::unexpected(done.error());
  }
  return request;
}

void Connection::drain_for_poller() {
  if (!poll_.is_open()) return;
  drain_control();
  drain_completions();
}

std::chrono::nanoseconds Connection::begin_spin() noexcept {
  const bool on_lane_core = queues_.is_open() && queues_.queue().lane_core() == ::sched_getcpu();
  return wait_policy_.begin(on_lane_core);
}

bool Connection::send_command(const ipc::CommandEntry& command, const ipc::CommandExtra& extra,
                              bool more) {
  if (dead_) return false;
  // The queue has room for as many commands as there are slots. If it is full all the same, the
  // daemon's index is wrong.
  if (queues_.push(command, extra, more)) return true;
  die(ErrorCode::kUnavailable, fmt::format("the daemon at {} wrote an impossible index into the "
                                           "shared queue: the connection is closed",
                                           path_));
  return false;
}

}  // namespace gradwire::client
