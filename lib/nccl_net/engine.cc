// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/engine.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "nccl_net/log.h"
#include "nccl_net/own_address.h"

namespace gradwire::nccl_net {
namespace {

constexpr int kBacklog = 512;
/// A process has links with so many others, in and out; more are refused.
constexpr std::size_t kLinksMax = 1024;
constexpr std::size_t kAttemptsMax = 1024;

}  // namespace

Engine& Engine::get() {
  static Engine* engine = new Engine;
  return *engine;
}

Engine::Engine() {
  if (!fill_random(process_)) std::abort();  // the kernel always has them once it is up
}

std::shared_ptr<Clients> Engine::clients(std::string& why) {
  const std::lock_guard lock(clients_mutex_);
  if (clients_ != nullptr && !clients_->answer(why)) clients_ = nullptr;
  if (clients_ == nullptr) clients_ = Clients::open(why);
  if (clients_ != nullptr) why.clear();
  return clients_;
}

Status Engine::listen(Handle& handle, bool links, Listener** out) {
  auto made = std::make_unique<Listener>();
  handle = Handle{};
  std::string why;
  if (!own_address(handle.address, why)) {
    warn("%s", why.c_str());
    return kSystemError;
  }
  auto* address = reinterpret_cast<sockaddr*>(&handle.address);
  socklen_t bytes = sizeof(handle.address);
  made->socket = Descriptor::tcp_socket(address->sa_family);
  const int fd = made->socket.get();
  if (fd < 0 || bind(fd, address, bytes) != 0 || ::listen(fd, kBacklog) != 0 ||
      getsockname(fd, address, &bytes) != 0 || !fill_random(made->token)) {
    warn("listening for TCP connections: %s", std::strerror(errno));
    return kSystemError;
  }
  handle.listener = made->token;
  handle.process = process_;
  made->links = links;
  const std::lock_guard lock(mutex);
  listeners_[made->token] = made.get();
  *out = made.release();
  return kSuccess;
}

Engine::Attempt Engine::begin(const Handle& handle, bool own) {
  // The newest: an older one may be about to end.
  for (auto link = links_.rbegin(); link != links_.rend() && !own; ++link) {
    if ((*link)->peer() == handle.process && (*link)->is_usable() && !(*link)->is_full()) {
      return {*link, false, ""};
    }
  }
  links_.push_back(Link::begin(handle));
  return {links_.back(), true, ""};
}

Status Engine::connect(Handle& handle, Connection** out) {
  *out = nullptr;
  if (handle.magic != kMagic) {
    warn("the handle is not this plug-in's, or another version's: all ranks need the same one");
    return kInvalidUsage;
  }
  if (handle.process == process_) {
    warn("two ranks of one process connect by net: this plug-in does not carry that");
    return kInvalidUsage;
  }
  const std::lock_guard lock(mutex);
  auto found = attempts_.find(handle.attempt);
  if (found == attempts_.end()) {
    if (links_.size() >= kLinksMax) {
      warn("this process already has links with %zu others", links_.size());
      return kSystemError;
    }
    if (attempts_.size() >= kAttemptsMax) attempts_.erase(attempts_.begin());
    handle.attempt = next_attempt_++;
    found = attempts_.emplace(handle.attempt, begin(handle, false)).first;
  }
  Attempt& attempt = found->second;
  switch (attempt.link != nullptr ? attempt.link->state() : Link::State::kFailed) {
    case Link::State::kForming:
      // The other end may be connecting, too, and who makes the link depends on both.
      look_at_doors();
      return kSuccess;
    case Link::State::kEnding:
      return kSuccess;
    case Link::State::kReady:
      if (attempt.link->is_full()) {
        attempt = begin(handle, true);
        return kSuccess;
      }
      *out = attempt.link->open(handle.listener);
      if (*out != nullptr) attempts_.erase(found);
      return kSuccess;
    case Link::State::kFailed:
      if (attempt.own) break;
      // It was made for somebody else, whose listener may be gone.
      attempt = begin(handle, true);
      return kSuccess;
    case Link::State::kEnded:
      attempt = begin(handle, false);
      return kSuccess;
  }
  warn("no connection: %s",
       attempt.link != nullptr ? attempt.link->why().c_str() : attempt.why.c_str());
  attempts_.erase(found);
  return kRemoteError;
}

Status Engine::accept(Listener& listener, Connection** out) {
  *out = nullptr;
  const std::lock_guard lock(mutex);
  look_at_doors();
  if (listener.opened.empty()) {
    for (std::size_t i = 0; i < links_.size(); ++i) links_[i]->progress(nullptr);
  }
  if (listener.opened.empty()) return kSuccess;
  *out = listener.opened.front();
  listener.opened.pop_front();
  return kSuccess;
}

void Engine::look_at_doors() {
  for (const auto& [token, listener] : listeners_) {
    if (!listener->links) continue;
    listener->doorstep.look(listener->socket.get(), [this](Descriptor socket, const void* word) {
      Hello hello;
      std::memcpy(&hello, word, sizeof(hello));
      welcome(std::move(socket), hello);
    });
  }
}

void Engine::welcome(Descriptor socket, const Hello& hello) {
  // Strangers are not worth a line.
  if ((hello.magic & kMagicOfAll) != (kMagic & kMagicOfAll)) return;
  if (hello.magic != kMagic || hello.kind != HelloKind::kConnect) {
    warn("a process that connects here was refused: it has another version of the plug-in");
  } else if (!listens(hello.listener)) {
    warn("a process that connects here was refused: it asks for a listener that is not there");
  } else if (links_.size() >= kLinksMax) {
    warn("this process already has links with %zu others", links_.size());
  } else if (gives_way(hello.process)) {
    links_.push_back(Link::take(std::move(socket), hello));
  } else {
    Hello answer;
    answer.kind = HelloKind::kUseMine;
    // There is room in a socket on which nothing was said. If not, it asks again.
    send(socket.get(), &answer, sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
}

bool Engine::gives_way(const Token& process) {
  for (const auto& link : links_) {
    if (link->peer() != process || !link->is_asked_for()) continue;
    if (process_ < process) return false;
    link->give_way();
  }
  return true;
}

bool Engine::offer(const Token& listener, Connection* connection) {
  const auto found = listeners_.find(listener);
  if (found == listeners_.end()) return false;
  found->second->opened.push_back(connection);
  return true;
}

void Engine::close(Listener* listener) {
  const std::lock_guard lock(mutex);
  listeners_.erase(listener->token);
  for (Connection* connection : listener->opened) connection->link->close(*connection);
  delete listener;
}

void Engine::close(Connection* connection) {
  const std::lock_guard lock(mutex);
  const std::shared_ptr<Link> link = connection->link;
  link->close(*connection);
}

void Engine::forget(const Link& link) {
  const std::lock_guard lock(mutex);
  for (auto one = attempts_.begin(); one != attempts_.end();) {
    Attempt& attempt = one->second;
    const bool concerned = attempt.link.get() == &link;
    if (concerned) {
      attempt.why = link.why();
      attempt.link = nullptr;
    }
    // Whoever still asks for one that has ended begins again.
    const bool over = concerned && link.state() == Link::State::kEnded;
    one = over ? attempts_.erase(one) : std::next(one);
  }
  std::erase_if(links_, [&](const auto& one) { return one.get() == &link; });
}

}  // namespace gradwire::nccl_net
