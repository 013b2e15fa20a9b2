// SPDX-License-Identifier: BSD-3-Clause
// A link's thread: makes the link, sleeps while it is used, takes it down. It has Engine's lock
// only where it says so; what waits here waits without it.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <thread>

#include "nccl_net/engine.h"
#include "nccl_net/link.h"
#include "nccl_net/log.h"
#include "nccl_net/quiet_thread.h"
#include "nccl_net/setup_socket.h"

namespace gradwire::nccl_net {
namespace {

/// A process that has connected says hello at once.
constexpr std::chrono::seconds kHello{5};
/// Its group may have to wait for its daemon.
constexpr std::chrono::seconds kReady{40};
constexpr std::uint32_t kJoinMs = 30'000;
/// For what was said last to be on its way.
constexpr int kFlushTries = 200;
constexpr int kFlushMs = 10;
constexpr int kDrainTries = 10'000;

std::string system_error(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

}  // namespace

std::shared_ptr<Link> Link::begin(const Handle& to) {
  auto link = std::make_shared<Link>(true, Descriptor(), to);
  start_quietly([link] { link->run(Hello{}); });
  return link;
}

std::shared_ptr<Link> Link::take(Descriptor socket, const Hello& hello) {
  auto link = std::make_shared<Link>(false, std::move(socket), Handle{});
  start_quietly([link, hello] { link->run(hello); });
  return link;
}

Link::Link(bool sends, Descriptor socket, const Handle& to)
    : sends_(sends),
      listener_(to.listener),
      peer_(to.process),
      to_(to),
      bell_(Descriptor::event()) {
  pipe_.use(std::move(socket));
}

void Link::wake() {
  const std::uint64_t one = 1;
  // It holds 2^64 - 2 of them.
  [[maybe_unused]] const ssize_t written = write(bell_.get(), &one, sizeof(one));
}

/// @param hello  of the other end, if it has said it already
void Link::run(Hello hello) {
  std::string why;
  bool formed = false;
  try {
    formed = form(hello, why);
  } catch (const std::exception& error) {  // no memory, or no more threads
    why = error.what();
  }
  {
    const std::lock_guard lock(Engine::get().mutex);
    if (formed) {
      state_ = State::kReady;
    } else {
      why_ = why;
      state_ = State::kFailed;
      if (!sends_) warn("a process that connects here was refused: %s", why.c_str());
    }
  }
  if (formed) watch();
  take_down();
  Engine::get().forget(*this);
}

bool Link::form(const Hello& hello, std::string& why) {
  if (!bell_) {
    why = system_error("eventfd");
    return false;
  }
  if (sends_) {
    Descriptor made = connect_to(to_.address, SetupClock::now() + kHello, why);
    if (!made) return false;
    pipe_.use(std::move(made));
  }
  const int on = 1;
  setsockopt(pipe_.socket(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return say_hello(hello, why);
}

bool Link::say_hello(Hello other, std::string& why) {
  const int fd = pipe_.socket();
  Hello own;
  own.listener = sends_ ? listener_ : other.listener;
  own.process = Engine::get().process();
  clients_ = Engine::get().clients(why);
  if (clients_ == nullptr) return false;
  if (!clients_->describe(own, why)) return false;
  if (sends_ && !fill_random(own.group_id)) {
    why = system_error("getrandom");
    return false;
  }
  if (!say(fd, own, SetupClock::now() + kHello)) {
    why = system_error("saying hello");
    return false;
  }
  if (sends_) {
    // It opens its clients first.
    if (!hear(fd, other, SetupClock::now() + kReady) || other.magic != kMagic ||
        other.clients != kClients) {
      why =
          "the process that listens did not answer: its log says why, or its plug-in is another "
          "version";
      return false;
    }
  }
  return say_ready(join(sends_ ? own : other, sends_ ? other : own, why), why);
}

bool Link::join(const Hello& sender, const Hello& receiver, std::string& why) {
  std::array<unsigned char, 2 * kClients * GW_RANK_INFO_BYTES> infos;
  std::memcpy(infos.data(), sender.infos.data(), infos.size() / 2);
  std::memcpy(infos.data() + infos.size() / 2, receiver.infos.data(), infos.size() / 2);
  std::array<std::string, kClients> errors;
  const auto join_one = [&](std::uint32_t i) {
    End& end = ends_[i];
    gw_client* client = clients_->at(i);
    end.memory = take_memory(client, &end.base, errors[i]);
    if (end.memory == nullptr) return;
    gw_processes_config config{};
    config.struct_bytes = sizeof(config);
    config.epoch = 1;
    config.group_id = sender.group_id;
    config.process = (sends_ ? 0 : kClients) + i;
    config.processes = 2 * kClients;
    config.timeout_ms = kJoinMs;
    config.infos = infos.data();
    config.infos_bytes = infos.size();
    if (gw_group_join_processes(client, &config, &end.group) != GW_OK) errors[i] = gw_last_error();
  };
  {
    // They are joined also if one more cannot be started.
    std::array<std::jthread, kClients> threads;
    for (std::uint32_t i = 0; i < kClients; ++i) threads[i] = std::jthread(join_one, i);
  }
  for (const std::string& error : errors) {
    if (why.empty()) why = error;
  }
  return why.empty();
}

bool Link::say_ready(bool ok, std::string& why) {
  const int fd = pipe_.socket();
  Ready own;
  own.ok = ok ? 1 : 0;
  std::snprintf(own.text.data(), own.text.size(), "%s", why.c_str());
  Ready other;
  const SetupTime until = SetupClock::now() + kReady;
  const bool heard = say(fd, own, until) && hear(fd, other, until);
  if (!ok) return false;
  if (!heard) {
    why = "the other process went away while the link to it was made";
    return false;
  }
  other.text.back() = 0;
  if (other.ok == 0) why = std::string("the other process says: ") + other.text.data();
  return other.ok != 0;
}

/// Until the link is to end.
void Link::watch() {
  bool gone = false;
  SetupTime unused_until = SetupClock::now();
  {
    const std::lock_guard lock(Engine::get().mutex);
    unused_until += Engine::get().unused_bound;
  }
  // A receiver is left alone if its sender is.
  bool unused = sends_;
  bool speaks = false;
  while (true) {
    pollfd wait[2] = {{bell_.get(), POLLIN, 0}, {pipe_.socket(), POLLRDHUP, 0}};
    if (speaks) wait[1].events |= POLLOUT;
    // Once the other end has closed, only the bell is left to wait for.
    poll(wait, gone ? 1 : 2, unused ? milliseconds_to(unused_until) : -1);
    std::uint64_t rung = 0;
    [[maybe_unused]] const ssize_t taken = read(bell_.get(), &rung, sizeof(rung));
    const std::lock_guard lock(Engine::get().mutex);
    unused = unused && next_number_ == 1;
    if (unused && state_ == State::kReady && SetupClock::now() >= unused_until) {
      state_ = State::kEnded;
      ending_ = true;
    }
    pipe_.flush();
    speaks = state_ == State::kReady && !pipe_.is_empty();
    if (!gone && (wait[1].revents & ~POLLOUT) != 0) {
      gone = true;
      for (int i = 0; i < kDrainTries && state_ == State::kReady && !pipe_.ended(); ++i) {
        progress(nullptr);
      }
      if (open_ == 0) ending_ = true;
    }
    if (ending_) return;
  }
}

void Link::take_down() {
  bool said = false;
  for (int tries = 0; tries < kFlushTries && !said; ++tries) {
    if (tries > 0) usleep(kFlushMs * 1000);
    const std::lock_guard lock(Engine::get().mutex);
    if (state_ == State::kReady) state_ = State::kEnded;
    if (state_ == State::kEnded) pipe_.flush();
    said = state_ != State::kEnded || pipe_.ended() || pipe_.is_empty();
  }
  {
    const std::lock_guard lock(Engine::get().mutex);
    for (Stream& stream : streams_) {
      for (; stream.head != stream.posted; ++stream.head) gw_work_free(stream.at(stream.head).work);
    }
  }
  if (pipe_.socket() >= 0) shutdown(pipe_.socket(), SHUT_WR);
  for (End& end : ends_) gw_group_free(end.group);
  // It belongs to the daemon until that has left the group.
  for (End& end : ends_) free_memory(end.memory);
  // What the other end still says is read: a socket closed with unread bytes in it would take what
  // was said here last away from the other end.
  if (pipe_.socket() >= 0 && sends_) {
    pollfd wait{pipe_.socket(), POLLRDHUP, 0};
    poll(&wait, 1, kFlushTries * kFlushMs);
  }
  const std::lock_guard lock(Engine::get().mutex);
  Record record;
  for (int i = 0; i < kDrainTries && pipe_.socket() >= 0 && pipe_.next(record); ++i) {
  }
  pipe_.close();
  // They keep the link alive, and nobody else has them any more.
  connections_.clear();
}

}  // namespace gradwire::nccl_net
