// SPDX-License-Identifier: BSD-3-Clause
#include "nccl/sockets/collnet.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "nccl/datatypes.h"

namespace gradwire::nccl {
namespace {

using nccl_net::kSuccess;
using nccl_net::Status;

constexpr int kJoinTimeoutMs = 30'000;
constexpr int kLookAtStopMs = 100;
constexpr std::uint64_t kWrongEvery = 5;

}  // namespace

bool Star::supports(nccl_net::DataType datatype, nccl_net::RedOp redop) {
  return element_bytes(datatype) > 0 && redop >= 0 && redop < nccl_net::kRedOps;
}

std::unique_ptr<Star> Star::join(void* handles[], int nranks, int rank, Listener& listener) {
  std::vector<int> sockets;
  if (rank > 0) {
    Handle middle;
    std::memcpy(&middle, handles[0], sizeof(middle));
    sockets.push_back(connect_one(middle, static_cast<std::uint64_t>(rank), kJoinTimeoutMs));
  } else {
    sockets.assign(static_cast<std::size_t>(nranks - 1), -1);
    for (int i = 1; i < nranks; ++i) {
      std::uint64_t other = 0;
      const int fd = listener.accept_one(&other, kJoinTimeoutMs);
      if (fd < 0 || other < 1 || other >= static_cast<std::uint64_t>(nranks)) return nullptr;
      sockets[other - 1] = fd;
    }
  }
  if (std::find(sockets.begin(), sockets.end(), -1) != sockets.end()) return nullptr;
  std::unique_ptr<Star> star(new Star(std::move(sockets)));
  star->middle_ = rank == 0;
  star->thread_ = std::thread([made = star.get()] { made->run(); });
  return star;
}

Star::Star(std::vector<int> sockets) : sockets_(std::move(sockets)) {}

Star::~Star() {
  stop_.store(true, std::memory_order_seq_cst);
  bell_.ring();
  thread_.join();
  for (const int fd : sockets_) close(fd);
}

Status Star::post(const AllReduce& op, void** request) {
  *request = nullptr;
  if (!supports(op.datatype, op.redop)) return nccl_net::kInvalidArgument;
  const auto free = std::find_if(ops_.begin(), ops_.end(), [](const Op& o) { return !o.used; });
  if (free == ops_.end()) return kSuccess;
  free->what = op;
  free->used = true;
  free->number = posted_;
  free->done.store(false, std::memory_order_relaxed);
  free->failure.store(kSuccess, std::memory_order_relaxed);
  if (!handover_.push(&*free)) {
    free->used = false;
    return kSuccess;
  }
  ++posted_;
  bell_.ring();
  *request = &*free;
  return kSuccess;
}

Status Star::test(void* request, int* done, int* bytes) {
  auto* op = static_cast<Op*>(request);
  *done = op->done.load(std::memory_order_acquire) ? 1 : 0;
  if (*done == 0) return kSuccess;
  const std::size_t size = op->what.count * element_bytes(op->what.datatype);
  if (bytes != nullptr) *bytes = static_cast<int>(size);
  if (settings().fault == Fault::kWrongSum && size > 0 && op->number % kWrongEvery == 3) {
    static_cast<char*>(op->what.output)[size / 2] ^= 1;
  }
  op->used = false;
  return op->failure.load(std::memory_order_relaxed);
}

void Star::run() {
  while (!stop_.load(std::memory_order_acquire)) {
    Op* op = nullptr;
    if (handover_.pop(op)) {
      if (!reduce(op->what)) op->failure.store(nccl_net::kRemoteError, std::memory_order_relaxed);
      op->done.store(true, std::memory_order_release);
      continue;
    }
    bell_.about_to_sleep();
    pollfd wait{bell_.fd(), POLLIN, 0};
    if (handover_.empty() && !stop_.load(std::memory_order_seq_cst)) poll(&wait, 1, -1);
    bell_.awake();
  }
}

bool Star::reduce(const AllReduce& op) {
  const std::size_t bytes = op.count * element_bytes(op.datatype);
  if (middle_) return fold_at_middle(op, bytes);
  return transfer(sockets_[0], op.input, bytes, true) &&
         transfer(sockets_[0], op.output, bytes, false);
}

bool Star::fold_at_middle(const AllReduce& op, std::size_t bytes) {
  sum_.resize(std::max(sum_.size(), bytes));
  other_.resize(std::max(other_.size(), bytes));
  if (bytes > 0) std::memcpy(sum_.data(), op.input, bytes);
  for (const int fd : sockets_) {
    if (!transfer(fd, other_.data(), bytes, false)) return false;
    with_type(op.datatype, [&](auto zero) {
      using T = decltype(zero);
      auto* sum = reinterpret_cast<T*>(sum_.data());
      const auto* other = reinterpret_cast<const T*>(other_.data());
      for (std::size_t i = 0; i < op.count; ++i) sum[i] = combined(op.redop, sum[i], other[i]);
    });
  }
  for (const int fd : sockets_) {
    if (!transfer(fd, sum_.data(), bytes, true)) return false;
  }
  if (bytes > 0) std::memcpy(op.output, sum_.data(), bytes);
  return true;
}

bool Star::transfer(int fd, void* data, std::size_t bytes, bool sends) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t moved = sends ? send(fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL)
                                : recv(fd, at, bytes, MSG_DONTWAIT);
    if (moved > 0) {
      at += moved;
      bytes -= static_cast<std::size_t>(moved);
      continue;
    }
    if (moved == 0 || (errno != EAGAIN && errno != EINTR)) return false;
    if (stop_.load(std::memory_order_acquire)) return false;
    pollfd wait{fd, static_cast<short>(sends ? POLLOUT : POLLIN), 0};
    poll(&wait, 1, kLookAtStopMs);
  }
  return true;
}

}  // namespace gradwire::nccl
