// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/descriptor.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>

namespace gradwire::nccl_net {
namespace {

/// Whoever has it takes no other lock and does not wait, so fork() may take it at any time.
std::mutex g_mutex;
/// Head of the list of all.
Descriptor::Entry g_all;
std::atomic<bool> g_forked{false};

void before_fork() { g_mutex.lock(); }
void after_fork_in_parent() { g_mutex.unlock(); }
void after_fork_in_child() {
  for (Descriptor::Entry* one = g_all.behind; one != nullptr; one = one->behind) {
    if (one->fd >= 0) ::close(std::exchange(one->fd, -1));
    g_forked.store(true);
  }
  g_mutex.unlock();
}

void watch_forks() {
  [[maybe_unused]] static const int once =
      pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

}  // namespace

template <class Open>
Descriptor Descriptor::made_by(Open open) {
  watch_forks();
  auto entry = std::make_unique<Entry>();
  // No child is made between the two.
  const std::lock_guard lock(g_mutex);
  entry->fd = open();
  if (entry->fd < 0) return {};
  entry->before = &g_all;
  entry->behind = g_all.behind;
  if (g_all.behind != nullptr) g_all.behind->before = entry.get();
  g_all.behind = entry.get();
  Descriptor made;
  made.entry_ = entry.release();
  return made;
}

Descriptor Descriptor::tcp_socket(int family) {
  return made_by([&] { return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
}
Descriptor Descriptor::accepted_from(int listener) {
  return made_by([&] { return accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); });
}
Descriptor Descriptor::event() {
  return made_by([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    reset();
    entry_ = std::exchange(other.entry_, nullptr);
  }
  return *this;
}

void Descriptor::reset() noexcept {
  const std::unique_ptr<Entry> entry(std::exchange(entry_, nullptr));
  if (entry == nullptr) return;
  const std::lock_guard lock(g_mutex);
  entry->before->behind = entry->behind;
  if (entry->behind != nullptr) entry->behind->before = entry->before;
  if (entry->fd >= 0) ::close(entry->fd);
}

bool was_forked() noexcept { return g_forked.load(); }

}  // namespace gradwire::nccl_net
