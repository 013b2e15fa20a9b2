// SPDX-License-Identifier: BSD-3-Clause
// How a client handles what comes from the daemon: completions, replies, events, and its death.
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "client/client.h"

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

Result<void> Client::check_alive() const {
  if (dead_) return tl::unexpected(dead_reason_);
  return {};
}

void Client::die(ErrorCode code, std::string text) {
  if (dead_) return;
  dead_ = true;
  dead_reason_ = Error{code, std::move(text)};
  // The descriptor stays open for threads that poll it.
  ::shutdown(socket_.get(), SHUT_RDWR);
  pending_.clear();
  for (const auto& [handle, group] : groups_) {
    group->held.clear();
    group->held_transfers.clear();
  }
  held_ = 0;
  fail_all_work(code, dead_reason_.message);
  groups_.clear();
  wake_leader();
  changed_.notify_all();
}

void Client::wake_leader() noexcept {
  if (has_leader_) ::eventfd_write(wake_fd_.get(), 1);
}

void Client::empty_completion_fd() noexcept {
  std::uint64_t value;
  // At most as many as the daemon can have written by now.
  for (std::uint32_t i = 0; i < ipc::kCompletionEntries; ++i) {
    if (::recv(completion_fd_.get(), &value, sizeof(value), MSG_DONTWAIT) <= 0) return;
  }
}

bool Client::drain_completions() {
  if (dead_ || region_ == nullptr) return false;
  if (held_ != 0 || !leaving_.empty()) advance_streams();
  if (dead_) return false;
  if (epoll_fd_) {
    // Emptied and armed before the queue is read, so that later completions wake this client.
    empty_completion_fd();
    queue_.set_client_waits(true);
  }
  bool any = false;
  ipc::CompletionEntry entry;
  while (true) {
    const ipc::PopResult result = queue_.pop_completion(entry);
    if (result == ipc::PopResult::kEmpty) break;
    gw_work* work = nullptr;
    if (result == ipc::PopResult::kEntry) {
      work = slots_[entry.request_id % kSlots].get();
    }
    if (work == nullptr || work->request_id != entry.request_id ||
        work->state != gw_work::State::kPosted) {
      die(ErrorCode::kUnavailable, fmt::format("the daemon at {} reported the end of an op that "
                                               "was not posted: the connection is closed",
                                               path_));
      return true;
    }
    const bool known = entry.status <= static_cast<std::uint32_t>(ErrorCode::kInternal);
    finish(*work, known ? static_cast<ErrorCode>(entry.status) : ErrorCode::kInternal, entry.text,
           entry.op_seq);
    any = true;
  }
  if (any) {
    changed_.notify_all();
    wake_leader();
  }
  return any;
}

bool Client::drain_control() {
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
    changed_.notify_all();
    wake_leader();
  }
  return any;
}

void Client::drain_control_sometimes() {
  const auto interval = epoll_fd_ ? kPolledCheckInterval : kControlCheckInterval;
  if (Clock::now() - last_control_check_ >= interval) drain_control();
}

void Client::dispatch(ipc::Message message) {
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
    if (!event) return;
    const auto it = groups_.find(event->group_handle);
    if (it == groups_.end()) return;
    const std::shared_ptr<gw_group> group = it->second;
    mark_aborted(*group, ipc::text_of(event->text));
    fail_held(*group, ErrorCode::kAborted, group->abort_text);
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

void Client::sleep_as_leader(Lock& lock, Deadline deadline) {
  const auto slept = Clock::now().time_since_epoch();
  ring_if_due();
  if (region_ != nullptr) {
    queue_.set_client_waits(true);
    if (queue_.has_completion()) return;
  }
  has_leader_ = true;
  // poll() ignores entries below 0: before the client is open there is no completion descriptor.
  pollfd entries[3] = {
      {socket_.get(), POLLIN, 0}, {wake_fd_.get(), POLLIN, 0}, {completion_fd_.get(), POLLIN, 0}};
  const bool waits_for_stream = held_ != 0;
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
    const std::chrono::nanoseconds rung(queue_.woken_at_ns());
    wait_policy_.woke(slept, rung, Clock::now().time_since_epoch());
    empty_completion_fd();
  }
  if (!dead_ && region_ != nullptr) queue_.set_client_waits(static_cast<bool>(epoll_fd_));
  if (entries[0].revents != 0) drain_control();
  drain_completions();
  // Even if nothing came, because another waiting thread has to become the leader now.
  changed_.notify_all();
}

std::uint32_t Client::next_request_id() noexcept {
  if (next_request_id_ == 0) next_request_id_ = 1;  // 0 marks events
  return next_request_id_++;
}

Result<ipc::SocketStatus> Client::send(ipc::MessageType type, std::uint32_t request_id,
                                       std::span<const std::byte> body, std::span<const int> fds) {
  ipc::MessageHeader header;
  header.type = static_cast<std::uint16_t>(type);
  header.request_id = request_id;
  return ipc::send_message(socket_.get(), header, body, fds);
}

Result<Client::RequestPtr> Client::begin_request(Lock& lock, ipc::MessageType type,
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

Result<void> Client::await_request(Lock& lock, const RequestPtr& request, Deadline deadline,
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

void Client::send_and_forget(ipc::MessageType type, std::span<const std::byte> body) {
  if (dead_) return;
  // With the number 0 it is not answered: an answer that nobody waits for would wake those who
  // poll.
  (void)send(type, 0, body);
}

void Client::forget_memory(std::uint32_t handle) {
  ipc::FreeRequest body;
  body.memory = handle;
  send_and_forget(ipc::MessageType::kFree, ipc::bytes_of(body));
}

void Client::forget_mapping(std::shared_ptr<Mapping> mapping) {
  const std::uint32_t handle = mapping->handle;
  // Memory on a GPU must be closed here before the daemon frees it.
  mapping.reset();
  forget_memory(handle);
}

void Client::add_unreported() {
  if (++unreported_ == 1 && notify_fd_) ::eventfd_write(notify_fd_.get(), 1);
}

void Client::remove_unreported() {
  eventfd_t value;
  if (--unreported_ == 0 && notify_fd_) ::eventfd_read(notify_fd_.get(), &value);
}

void Client::stop_awaiting(gw_work& work) noexcept {
  if (!work.awaited) return;
  work.awaited = false;
  --awaited_;
  choose_sources();
}

void Client::take_in() {
  const Lock lock(mutex_);
  look_for_poller();
}

void Client::look_for_poller() {
  if (!epoll_fd_) return;
  drain_control();
  drain_completions();
}

void Client::choose_sources() noexcept {
  if (!epoll_fd_) return;
  const auto see = [this](int fd, bool wanted, bool& sees) noexcept {
    if (wanted == sees) return;
    epoll_event event{};
    event.events = wanted ? EPOLLIN : 0u;  // that the connection is broken it sees in any case
    if (::epoll_ctl(epoll_fd_.get(), EPOLL_CTL_MOD, fd, &event) == 0) sees = wanted;
  };
  // If all unfinished ops are freed, their ends are nobody's. Without an unfinished op nothing
  // comes, and the next one decides.
  const bool all_freed = awaited_ == 0 && (!in_flight_.empty() || !sees_completions_);
  see(completion_fd_.get(), !all_freed, sees_completions_);
  // Of a client without groups there are answers to what it sent and did not wait for.
  see(socket_.get(), !groups_.empty(), sees_messages_);
}

}  // namespace gradwire::client
