// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/sockets/helper.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace gradwire::nccl {

Bell::Bell() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}
Bell::~Bell() { close(fd_); }

void Bell::ring() {
  if (!asleep_.exchange(false, std::memory_order_seq_cst)) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
}

void Bell::awake() {
  asleep_.store(false, std::memory_order_seq_cst);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = read(fd_, &count, sizeof(count));
}

Helper::Helper(std::vector<int> sockets, bool sends)
    : sockets_(std::move(sockets)), sends_(sends), queues_(sockets_.size()) {
  thread_ = std::thread([this] { run(); });
}

Helper::~Helper() {
  stop_.store(true, std::memory_order_seq_cst);
  bell_.ring();
  thread_.join();
}

bool Helper::push(const Piece& piece) {
  if (!handover_.push(piece)) return false;
  bell_.ring();
  return true;
}

void Helper::run() {
  while (!stop_.load(std::memory_order_acquire)) {
    Piece piece;
    while (handover_.pop(piece)) {
      queues_[static_cast<std::size_t>(piece.connection)].push_back(piece);
    }
    bool moved = false;
    for (std::size_t i = 0; i < sockets_.size(); ++i) moved |= advance(i);
    if (!moved) sleep();
  }
}

bool Helper::advance(std::size_t connection) {
  std::deque<Piece>& queue = queues_[connection];
  if (queue.empty()) return false;
  Piece& piece = queue.front();
  const ssize_t moved =
      sends_ ? send(sockets_[connection], piece.data, piece.bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
             : recv(sockets_[connection], piece.data, piece.bytes, MSG_DONTWAIT);
  if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return errno == EINTR;
  if (moved <= 0) {
    piece.failure->store(nccl_net::kRemoteError, std::memory_order_release);
    queue.pop_front();
    return true;
  }
  piece.data += moved;
  piece.bytes -= static_cast<std::size_t>(moved);
  if (piece.bytes == 0) {
    piece.left->fetch_sub(1, std::memory_order_release);
    queue.pop_front();
  }
  return true;
}

void Helper::sleep() {
  std::vector<pollfd> waits;
  waits.reserve(sockets_.size() + 1);
  waits.push_back({bell_.fd(), POLLIN, 0});
  for (std::size_t i = 0; i < sockets_.size(); ++i) {
    if (queues_[i].empty()) continue;
    waits.push_back({sockets_[i], static_cast<short>(sends_ ? POLLOUT : POLLIN), 0});
  }
  bell_.about_to_sleep();
  if (handover_.empty() && !stop_.load(std::memory_order_seq_cst)) {
    poll(waits.data(), waits.size(), -1);
  }
  bell_.awake();
}

}  // namespace gradwire::nccl
