// SPDX-License-Identifier: BSD-3-Clause
// How two processes make a link. A thread of the link's runs it, and waits without Engine's lock.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "nccl_net/engine.h"
#include "nccl_net/link.h"
#include "nccl_net/setup_socket.h"

namespace gradwire::nccl_net {
namespace {

/// A process that has connected says hello at once, and goes on as soon as it was answered.
constexpr std::chrono::seconds kHello{5};
/// Its group may have to wait for its daemon, and its answer until it looks at its listeners.
constexpr std::chrono::seconds kReady{40};
constexpr std::uint32_t kJoinMs = 30'000;
/// How often one who asks looks whether it gives way, and how long one waits for the other's link.
constexpr std::chrono::milliseconds kLook{20};

}  // namespace

Link::Formed Link::form(const Hello& hello, std::string& why) {
  if (!bell_) {
    why = std::string("eventfd: ") + std::strerror(errno);
    return Formed::kNo;
  }
  if (makes_) {
    Descriptor made = connect_to(to_.address, SetupClock::now() + kHello, why);
    if (!made) return Formed::kNo;
    pipe_.use(std::move(made));
  }
  const int on = 1;
  setsockopt(pipe_.socket(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  Hello own;
  Hello other = hello;
  own.kind = makes_ ? HelloKind::kConnect : HelloKind::kTake;
  own.listener = makes_ ? listener_ : other.listener;
  own.process = Engine::get().process();
  clients_ = Engine::get().clients(why);
  if (clients_ == nullptr) return Formed::kNo;
  client_ = clients_->take_place(why);
  if (client_ == nullptr || !describe(client_, own.info, why)) return Formed::kNo;
  gw_client_info facts{};
  facts.struct_bytes = sizeof(facts);
  if (gw_client_get_info(client_, &facts) != GW_OK) {
    why = gw_last_error();
    return Formed::kNo;
  }
  own.daemon = facts.incarnation;
  const Formed agreed = makes_ ? ask(own, other, why) : answer(own, other, why);
  if (agreed != Formed::kYes) return agreed;
  const bool joined = join(makes_ ? own : other, makes_ ? other : own, why);
  return say_ready(joined, why) ? Formed::kYes : Formed::kNo;
}

Link::Formed Link::ask(Hello& own, Hello& other, std::string& why) {
  const int fd = pipe_.socket();
  if (!fill_random(own.group_id)) {
    why = std::string("getrandom: ") + std::strerror(errno);
    return Formed::kNo;
  }
  if (!say(fd, own, SetupClock::now() + kHello)) {
    why = std::string("saying hello: ") + std::strerror(errno);
    return Formed::kNo;
  }
  // It looks when its NCCL calls for any connection, and opens its client first.
  const SetupTime until = SetupClock::now() + kReady;
  while (!wait_for(fd, POLLIN, std::min(until, SetupClock::now() + kLook))) {
    const std::lock_guard lock(Engine::get().mutex);
    if (gives_way_) return Formed::kNotWanted;
    if (SetupClock::now() >= until) break;
  }
  if (!hear(fd, other, std::min(until, SetupClock::now() + kHello)) || other.magic != kMagic) {
    why =
        "the process that listens did not answer: its log says why, or its plug-in is another "
        "version";
    const std::lock_guard lock(Engine::get().mutex);
    return gives_way_ ? Formed::kNotWanted : Formed::kNo;
  }
  if (other.kind == HelloKind::kUseMine) {
    // It has begun, and whoever connects here looks for it.
    std::this_thread::sleep_for(kLook);
    return Formed::kNotWanted;
  }
  {
    const std::lock_guard lock(Engine::get().mutex);
    if (gives_way_) return Formed::kNotWanted;
    answered_ = true;
  }
  if (say(fd, Go{}, SetupClock::now() + kHello)) return Formed::kYes;
  why = std::string("answering the process that listens: ") + std::strerror(errno);
  return Formed::kNo;
}

Link::Formed Link::answer(Hello& own, const Hello& other, std::string& why) {
  own.group_id = other.group_id;
  if (!say(pipe_.socket(), own, SetupClock::now() + kHello)) {
    why = std::string("saying hello: ") + std::strerror(errno);
    return Formed::kNo;
  }
  Go go;
  const bool goes_on = hear(pipe_.socket(), go, SetupClock::now() + kHello) && go.magic == kMagic;
  // It may use a link from here instead, or nobody there waits any more.
  return goes_on ? Formed::kYes : Formed::kNotWanted;
}

/// The link's group, and gradient memory for it.
bool Link::join(const Hello& maker, const Hello& taker, std::string& why) {
  memory_ = take_memory(client_, 2 * Segments::kMemoryBytes, &base_, why);
  if (memory_ == nullptr) return false;
  const std::array<RankInfo, 2> infos{maker.info, taker.info};
  const std::uint32_t own = makes_ ? 0 : 1;
  gw_processes_config config{};
  config.struct_bytes = sizeof(config);
  config.epoch = 1;
  config.group_id = maker.group_id;
  config.process = own;
  config.processes = 2;
  config.timeout_ms = kJoinMs;
  config.infos = infos.data();
  config.infos_bytes = sizeof(infos);
  // Such a group is of two daemons.
  config.flags = maker.daemon != taker.daemon ? GW_GROUP_TRANSFERS_ALONE : 0;
  if (gw_group_join_processes(client_, &config, &group_) != GW_OK) {
    why = gw_last_error();
    return false;
  }
  sent_.use(group_, 1 - own, base_);
  came_.use(group_, 1 - own, base_ + Segments::kMemoryBytes);
  return true;
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

}  // namespace gradwire::nccl_net
