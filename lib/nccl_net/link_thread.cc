// SPDX-License-Identifier: BSD-3-Clause
// A link's thread: makes the link, sleeps while it is used, takes it down. It has Engine's lock
// only where it says so; what waits here waits without it.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <exception>

#include "nccl_net/engine.h"
#include "nccl_net/link.h"
#include "nccl_net/log.h"
#include "nccl_net/quiet_thread.h"
#include "nccl_net/setup_socket.h"

namespace gradwire::nccl_net {
namespace {

/// For what was said last to be on its way.
constexpr int kFlushTries = 200;
constexpr int kFlushMs = 10;
constexpr int kDrainTries = 10'000;
/// How often the thread looks for the last transfers, which no descriptor tells of: less and less,
/// since the other end may have to be called for them.
constexpr int kTickMs = 2;
constexpr int kTickMostMs = 200;

}  // namespace

std::shared_ptr<Link> Link::begin(const Handle& to) {
  auto link = std::make_shared<Link>(true, Descriptor(), to);
  start_quietly([link] { link->run(Hello{}); });
  return link;
}

std::shared_ptr<Link> Link::take(Descriptor socket, const Hello& hello) {
  auto link = std::make_shared<Link>(false, std::move(socket), Handle{});
  link->peer_ = hello.process;
  start_quietly([link, hello] { link->run(hello); });
  return link;
}

Link::Link(bool makes, Descriptor socket, const Handle& to)
    : makes_(makes),
      listener_(to.listener),
      peer_(to.process),
      to_(to),
      bell_(Descriptor::event()),
      next_number_(makes ? 2 : 3) {
  pipe_.use(std::move(socket));
}

void Link::wake() {
  const std::uint64_t one = 1;
  // It holds 2^64 - 2 of them.
  [[maybe_unused]] const ssize_t written = write(bell_.get(), &one, sizeof(one));
}

/// @param hello  of the other end, if it has said it already
void Link::run(const Hello& hello) {
  std::string why;
  Formed formed = Formed::kNo;
  try {
    formed = form(hello, why);
  } catch (const std::exception& error) {  // no memory, or no more threads
    why = error.what();
  }
  {
    const std::lock_guard lock(Engine::get().mutex);
    why_ = why;
    state_ = formed == Formed::kYes  ? State::kReady
             : formed == Formed::kNo ? State::kFailed
                                     : State::kEnded;
    if (formed == Formed::kNo && !makes_) {
      warn("a process that connects here was refused: %s", why.c_str());
    }
  }
  if (formed == Formed::kYes) watch();
  take_down();
  Engine::get().forget(*this);
}

/// Until the link is to end.
void Link::watch() {
  bool gone = false;
  int tick_ms = kTickMs;
  SetupTime unused_until = SetupClock::now();
  {
    const std::lock_guard lock(Engine::get().mutex);
    unused_until += Engine::get().unused_bound;
  }
  pollfd wait[2] = {{bell_.get(), POLLIN, 0}, {pipe_.socket(), POLLRDHUP, 0}};
  while (true) {
    int timeout_ms = -1;
    {
      const std::lock_guard lock(Engine::get().mutex);
      if (is_live() && (open_ == 0 || gone)) progress(nullptr);
      if (is_live()) tell();
      look_for_end(SetupClock::now() >= unused_until);
      if (ending_) return;
      // Nobody calls for a link without connections.
      const bool alone = open_ == 0 && !gone;
      wait[1].events = static_cast<short>(POLLRDHUP | (alone ? POLLIN : 0) |
                                          (is_live() && !nothing_to_tell() ? POLLOUT : 0));
      if (makes_ && !used_ && state_ == State::kReady) timeout_ms = milliseconds_to(unused_until);
      tick_ms = alone && is_live() && !is_idle() ? std::min(2 * tick_ms, kTickMostMs) : kTickMs;
      if (tick_ms > kTickMs) timeout_ms = tick_ms;
    }
    wait[1].revents = 0;
    // Once the other end has closed, only the bell is left to wait for.
    if (poll(wait, gone ? 1 : 2, timeout_ms) > 0) tick_ms = kTickMs;
    std::uint64_t rung = 0;
    [[maybe_unused]] const ssize_t taken = read(bell_.get(), &rung, sizeof(rung));
    if ((wait[1].revents & ~(POLLOUT | POLLIN)) == 0 || gone) continue;
    gone = true;
    const std::lock_guard lock(Engine::get().mutex);
    for (int i = 0; i < kDrainTries && is_live() && !pipe_.ended(); ++i) progress(nullptr);
  }
}

void Link::look_for_end(bool unused_too_long) {
  if (open_ == 0 && (!is_live() || heard_end_ || !broken_.empty())) {
    if (is_live()) state_ = State::kEnded;
    ending_ = true;
    return;
  }
  // A group that is left with transfers in it would be aborted.
  if (!connections_.empty() || !is_idle()) return;
  if (is_over_) {
    if (!makes_) put(RecordKind::kEndToo);
    state_ = State::kEnded;
    ending_ = true;
  } else if (makes_ && state_ == State::kReady && (used_ || unused_too_long)) {
    put(RecordKind::kEnd);
    state_ = State::kEnding;
  }
}

/// Of a link without connections, which has told all.
void Link::put(RecordKind kind) {
  Record record;
  record.kind = kind;
  record.a = heard_opens_;
  pipe_.put(record);
  pipe_.flush();
}

void Link::take_down() {
  bool said = false;
  for (int tries = 0; tries < kFlushTries && !said; ++tries) {
    if (tries > 0) usleep(kFlushMs * 1000);
    const std::lock_guard lock(Engine::get().mutex);
    if (state_ == State::kEnded) pipe_.flush();
    said = state_ != State::kEnded || pipe_.ended() || pipe_.is_empty();
  }
  {
    const std::lock_guard lock(Engine::get().mutex);
    sent_.free_works();
    came_.free_works();
  }
  if (pipe_.socket() >= 0) shutdown(pipe_.socket(), SHUT_WR);
  gw_group_free(group_);
  // It belongs to the daemon until that has left the group.
  free_memory(memory_);
  if (client_ != nullptr) clients_->give_place(client_);
  // What the other end still says is read: a socket closed with unread bytes in it would take what
  // was said here last away from the other end.
  if (pipe_.socket() >= 0 && makes_ && answered_) {
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
