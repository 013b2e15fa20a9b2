// SPDX-License-Identifier: BSD-3-Clause
#include "client/completion_poll.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gradwire::client {

Result<void> CompletionPoll::open(int completion_fd, int socket) {
  ipc::UniqueFd notify(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  ipc::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {notify.get(), completion_fd, socket}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return fail(ErrorCode::kSystem, fmt::format("epoll_ctl: {}", strerror(errno)));
    }
  }
  notify_fd_ = std::move(notify);
  epoll_fd_ = std::move(epoll);
  completion_fd_ = completion_fd;
  socket_ = socket;
  if (unreported_ > 0) ::eventfd_write(notify_fd_.get(), 1);
  sees_completions_ = sees_messages_ = true;
  return {};
}

void CompletionPoll::add_unreported() {
  if (++unreported_ == 1 && notify_fd_) ::eventfd_write(notify_fd_.get(), 1);
}

void CompletionPoll::remove_unreported() {
  eventfd_t value;
  if (--unreported_ == 0 && notify_fd_) ::eventfd_read(notify_fd_.get(), &value);
}

void CompletionPoll::choose(bool completions, bool messages) noexcept {
  if (!epoll_fd_) return;
  const auto see = [this](int fd, bool wanted, bool& sees) noexcept {
    if (wanted == sees) return;
    epoll_event event{};
    event.events = wanted ? EPOLLIN : 0u;  // that the connection is broken it sees in any case
    if (::epoll_ctl(epoll_fd_.get(), EPOLL_CTL_MOD, fd, &event) == 0) sees = wanted;
  };
  see(completion_fd_, completions, sees_completions_);
  see(socket_, messages, sees_messages_);
}

void CompletionPoll::abandon() noexcept {
  notify_fd_.reset();
  epoll_fd_.reset();
}

}  // namespace gradwire::client
