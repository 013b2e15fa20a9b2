// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/doorstep.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <vector>

namespace gradwire::nccl_net {
namespace {

/// Whoever says nothing for so long is sent away.
constexpr std::chrono::seconds kSilence{5};

}  // namespace

bool Doorstep::hear_more(Newcomer& one) const {
  while (one.heard < word_bytes_) {
    const ssize_t came =
        recv(one.socket.get(), &one.word[one.heard], word_bytes_ - one.heard, MSG_DONTWAIT);
    if (came > 0) {
      one.heard += static_cast<std::size_t>(came);
    } else if (came < 0 && errno == EINTR) {
      continue;
    } else {
      return came < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
  }
  return true;
}

void Doorstep::drop_silent() {
  const SetupTime oldest = SetupClock::now() - kSilence;
  while (!newcomers_.empty() && newcomers_.front().since < oldest) newcomers_.pop_front();
}

void Doorstep::wait(int listener, SetupTime until) const {
  std::vector<pollfd> waits{{listener, POLLIN, 0}};
  for (const Newcomer& one : newcomers_) waits.push_back({one.socket.get(), POLLIN, 0});
  // A signal ends it early: the caller looks, and waits again.
  poll(waits.data(), waits.size(), milliseconds_to(until));
}

}  // namespace gradwire::nccl_net
