// SPDX-License-Identifier: BSD-3-Clause
// What a client that hung up keeps, until its process has gone.
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "control/memory/memories.h"

namespace gradwire::control {
namespace {

constexpr TimeNs kLingerCheckIntervalNs = 10'000'000;
/// A process takes milliseconds to end. If one hangs up and goes on, its memory is freed all the
/// same.
constexpr TimeNs kLingerNs = 5'000'000'000;

}  // namespace

bool Memories::is_kept(const Client& client, const Memory& memory, bool gone) const {
  if (memory.gpu.cuda) return client.linger_until != kNever;
  return client.retired && !memory.on_gpu() && stopping_.running() && !gone;
}

void Memories::watch_process(Client& client, TimeNs now) {
  const bool has_some = std::any_of(client.memories.begin(), client.memories.end(),
                                    [](const auto& entry) { return entry.second.gpu.cuda; });
  if (!has_some || !stopping_.running()) return;
  client.process = ipc::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, client.peer.pid, 0)));
  // If a process cannot be watched, nobody learns when it ends.
  if (!client.process && errno == ESRCH) return;
  client.linger_until = now + kLingerNs;
}

void Memories::retire(Client& client, TimeNs now) {
  for (auto& [handle, memory] : client.memories) memory.reply.reset();
  for (const std::uint32_t handle : client.to_make) client.memories.erase(handle);
  client.to_make.clear();
  if (client.making != nullptr) client.making->cancelled.store(true, std::memory_order_relaxed);
  watch_process(client, now);
}

void Memories::remove_all(Client& client) {
  for (const auto& [handle, memory] : client.memories) remove(client, handle);
}

bool Memories::is_gone(const Client& client) {
  pollfd end{client.completion.get(), 0, 0};
  return ::poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
}

void Memories::forget_if_gone(std::uint32_t client_id) {
  const Client* client = clients_.by_id(client_id);
  if (client == nullptr || !client->removed || !client->memories.empty()) return;
  if (!is_gone(*client) && stopping_.running()) return;
  const std::unique_ptr<Client> gone = clients_.take(client_id);
  discard(gone->peer.uid, std::move(gone->queue), false, {});
}

void Memories::release_lingering(TimeNs now) {
  if (now < next_linger_check_) return;
  next_linger_check_ = now + kLingerCheckIntervalNs;
  for (auto at = clients_.all().begin(); at != clients_.all().end();) {
    Client& client = *(at++)->second;
    if (!client.retired) continue;
    work_.add(1);
    pollfd process{client.process.get(), POLLIN, 0};
    const bool ended = client.process && ::poll(&process, 1, 0) == 1;
    if (ended || now >= client.linger_until || !stopping_.running()) {
      client.linger_until = kNever;
    }
    const bool gone = is_gone(client);
    std::vector<std::uint32_t> handles;
    for (const auto& [handle, memory] : client.memories) {
      if (memory.state == Memory::State::kLingering && !is_kept(client, memory, gone)) {
        handles.push_back(handle);
      }
    }
    for (const std::uint32_t handle : handles) on_removed(client, handle);
    forget_if_gone(client.id);
  }
}

}  // namespace gradwire::control
