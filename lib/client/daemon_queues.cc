// SPDX-License-Identifier: BSD-3-Clause
#include "client/daemon_queues.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <utility>

#include "client/map_shared.h"
#include "ipc/doorbell.h"

namespace gradwire::client {

DaemonQueues::~DaemonQueues() {
  if (region_ != nullptr) ::munmap(region_, bytes_);
}

Result<void> DaemonQueues::open(std::vector<ipc::UniqueFd>& fds, std::uint64_t bytes) {
  auto address = map_shared(fds[0].get(), bytes);
  if (!address) return tl::unexpected(address.error());
  ipc::QueueRegion* region = ipc::open_queue_region(*address, bytes);
  if (region == nullptr) {
    ::munmap(*address, bytes);
    return fail(ErrorCode::kUnsupported,
                fmt::format("this library does not know the layout of the daemon's queues, {} "
                            "bytes: install the library and the daemon of one release",
                            bytes));
  }
  region_ = region;
  bytes_ = bytes;
  queue_ = ipc::ClientQueue(region_);
  doorbell_ = std::move(fds[1]);
  completion_fd_ = std::move(fds[2]);
  return {};
}

void DaemonQueues::empty_completion_fd() noexcept {
  std::uint64_t value;
  // At most as many as the daemon can have written by now.
  for (std::uint32_t i = 0; i < ipc::kCompletionEntries; ++i) {
    if (::recv(completion_fd_.get(), &value, sizeof(value), MSG_DONTWAIT) <= 0) return;
  }
}

bool DaemonQueues::push(const ipc::CommandEntry& command, const ipc::CommandExtra& extra,
                        bool more) {
  if (!queue_.push_command(command, extra)) return false;
  unrung_ = true;
  if (!more) ring_if_due(false);
  return true;
}

void DaemonQueues::ring_if_due(bool dead) noexcept {
  if (!unrung_) return;
  unrung_ = false;
  if (dead || !queue_.daemon_sleeps()) return;
  ++counters_.doorbells;
  ipc::ring(doorbell_);
}

void DaemonQueues::abandon() noexcept {
  doorbell_.reset();
  completion_fd_.reset();
}

}  // namespace gradwire::client
