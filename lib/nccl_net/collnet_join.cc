// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a communicator of CollNet meet: each tells rank 0's listener how its daemon is
// reached, and gets what all have told. Then all join the group, and rank 0 hears from each whether
// it has, and tells all whether they have: all of them have the communicator then, or none.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "nccl_net/collnet.h"
#include "nccl_net/doorstep.h"
#include "nccl_net/log.h"
#include "nccl_net/setup_socket.h"

namespace gradwire::nccl_net {
namespace {

using Info = std::array<unsigned char, GW_RANK_INFO_BYTES>;

/// NCCL's ranks have just met when they come here.
constexpr auto kBound = std::chrono::seconds(10);
constexpr std::uint32_t kGroupMs = 10'000;
constexpr std::chrono::seconds kWord{5};
/// In which each rank has joined, or knows that it cannot.
constexpr auto kJoinBound = std::chrono::milliseconds(kGroupMs) + kWord;
constexpr int kRanksMax = GW_MAX_RANKS;

struct Greeting {
  std::uint32_t magic = kMagic;
  std::uint32_t rank = 0;
  std::uint32_t nranks = 0;
  std::uint32_t reserved = 0;
  Token listener{};
  Info info{};
};

using Sockets = std::vector<Descriptor>;

/// Rank 0: takes greetings of all others. Who is not meant is sent away, and holds up nobody.
bool meet(const Listener& listener, Sockets& sockets, std::vector<Info>& infos, std::string& why) {
  const SetupTime until = SetupClock::now() + kBound;
  const int door = listener.socket.get();
  Doorstep doorstep(sizeof(Greeting), infos.size() + kNewcomersMax);
  std::size_t missing = infos.size() - 1;
  const auto greeted = [&](Descriptor socket, const void* word) {
    Greeting greeting;
    std::memcpy(&greeting, word, sizeof(greeting));
    if (greeting.magic != kMagic || greeting.listener != listener.token ||
        greeting.nranks != infos.size() || greeting.rank == 0 || greeting.rank >= infos.size() ||
        sockets[greeting.rank]) {
      return;
    }
    infos[greeting.rank] = greeting.info;
    sockets[greeting.rank] = std::move(socket);
    --missing;
  };
  doorstep.look(door, greeted);
  while (missing > 0) {
    if (SetupClock::now() >= until) {
      why = std::to_string(missing) + " ranks have not come for CollNet";
      return false;
    }
    doorstep.wait(door, until);
    doorstep.look(door, greeted);
  }
  return true;
}

/// Both ends of the words of rank 0 and another.
struct Told {
  std::uint64_t group_id = 0;
};

bool tell_all(const Sockets& sockets, const Told& told, const std::vector<Info>& infos,
              std::string& why) {
  for (std::size_t rank = 1; rank < infos.size(); ++rank) {
    const int fd = sockets[rank].get();
    const SetupTime until = SetupClock::now() + kWord;
    if (say(fd, told, until) && say_bytes(fd, infos.data(), infos.size() * sizeof(Info), until)) {
      continue;
    }
    why = "rank " + std::to_string(rank) + " of CollNet has gone";
    return false;
  }
  return true;
}

/// Another rank. @return its socket to rank 0; empty: `why` says what is wrong.
Descriptor ask(void* handle, int rank, Told& told, std::vector<Info>& infos, std::string& why) {
  Handle first;
  std::memcpy(&first, handle, sizeof(first));
  if (first.magic != kMagic) {
    why = "rank 0's handle is of another version of the plug-in";
    return {};
  }
  Descriptor socket = connect_to(first.address, SetupClock::now() + kWord, why);
  if (!socket) return {};
  Greeting greeting;
  greeting.rank = static_cast<std::uint32_t>(rank);
  greeting.nranks = static_cast<std::uint32_t>(infos.size());
  greeting.listener = first.listener;
  greeting.info = infos[static_cast<std::size_t>(rank)];
  // Rank 0 answers when all have come.
  const SetupTime until = SetupClock::now() + kBound + kWord;
  if (say(socket.get(), greeting, until) && hear(socket.get(), told, until) &&
      hear_bytes(socket.get(), infos.data(), infos.size() * sizeof(Info), until)) {
    return socket;
  }
  why = "rank 0 of CollNet did not answer: its log says why";
  return {};
}

Ready ready(const std::string& why) {
  Ready made;
  made.ok = why.empty() ? 1 : 0;
  std::snprintf(made.text.data(), made.text.size(), "%s", why.c_str());
  return made;
}

/// Rank 0: hears of each whether it has joined, and tells all of them whether all have.
std::string tell_if_all_joined(const Sockets& sockets, std::string why) {
  const SetupTime until = SetupClock::now() + kJoinBound;
  for (std::size_t rank = 1; rank < sockets.size(); ++rank) {
    Ready one;
    const bool heard = hear(sockets[rank].get(), one, until);
    one.text.back() = 0;
    if (!why.empty() || (heard && one.ok != 0)) continue;
    why = "rank " + std::to_string(rank) +
          (heard ? std::string(": ") + one.text.data() : " has gone");
  }
  for (std::size_t rank = 1; rank < sockets.size(); ++rank) {
    // Who does not hear it gives up, and its group with it.
    (void)say(sockets[rank].get(), ready(why), SetupClock::now() + kWord);
  }
  return why;
}

/// Another rank. @return why not all have joined.
std::string hear_if_all_joined(const Descriptor& socket, const std::string& why) {
  // Rank 0 may hear of others first.
  const SetupTime until = SetupClock::now() + kJoinBound + kWord;
  Ready all;
  if (!say(socket.get(), ready(why), until) || !hear(socket.get(), all, until)) {
    return why.empty() ? "rank 0 of CollNet has gone before all had joined" : why;
  }
  all.text.back() = 0;
  return all.ok != 0 ? "" : all.text.data();
}

}  // namespace

std::unique_ptr<Collective> Collective::join(void* handles[], int nranks, int rank,
                                             const Listener& listener, std::string& why) {
  if (nranks < 1 || nranks > kRanksMax || rank < 0 || rank >= nranks) {
    why = "CollNet of " + std::to_string(nranks) + " ranks: at most " + std::to_string(kRanksMax);
    return nullptr;
  }
  std::unique_ptr<Collective> made(new Collective);
  made->clients_ = Engine::get().clients(why);
  if (made->clients_ == nullptr) return nullptr;
  std::vector<Info> infos(static_cast<std::size_t>(nranks));
  Info& own = infos[static_cast<std::size_t>(rank)];
  if (gw_client_describe(made->clients_->first(), own.data(), own.size()) != GW_OK) {
    why = gw_last_error();
    return nullptr;
  }
  Told told;
  Sockets sockets(rank > 0 ? 1 : infos.size());
  if (rank > 0) {
    sockets[0] = ask(handles[0], rank, told, infos, why);
    if (!sockets[0]) return nullptr;
  } else {
    if (!fill_random(told.group_id)) {
      why = "there are no random numbers";
      return nullptr;
    }
    if (!meet(listener, sockets, infos, why) || !tell_all(sockets, told, infos, why)) {
      return nullptr;
    }
  }
  const std::string own_why = made->form(told.group_id, rank, infos.data(), infos.size());
  // NCCL does not compare whether all ranks have CollNet. Without this, some would wait for sums
  // to which others do not add.
  why = rank > 0 ? hear_if_all_joined(sockets[0], own_why) : tell_if_all_joined(sockets, own_why);
  if (why.empty()) return made;
  made->broken_ = why;
  return nullptr;
}

/// @param infos  [count] x GW_RANK_INFO_BYTES
/// @return what is wrong.
std::string Collective::form(std::uint64_t group_id, int rank, const void* infos,
                             std::size_t count) {
  std::string why;
  memory_ = take_memory(clients_->first(), kMemoryBytes, &base_, why);
  if (memory_ == nullptr) return why;
  gw_processes_config config{};
  config.struct_bytes = sizeof(config);
  config.epoch = 1;
  config.group_id = group_id;
  config.process = static_cast<std::uint32_t>(rank);
  config.processes = static_cast<std::uint32_t>(count);
  config.timeout_ms = kGroupMs;
  config.infos = infos;
  config.infos_bytes = count * sizeof(Info);
  if (gw_group_join_processes(clients_->first(), &config, &group_) != GW_OK) return gw_last_error();
  return "";
}

}  // namespace gradwire::nccl_net
