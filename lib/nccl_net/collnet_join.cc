// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a communicator of CollNet meet: each tells rank 0's listener how its daemon is
// reached, and gets what all have told. Then all join the group.
#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "nccl_net/collnet.h"
#include "nccl_net/log.h"
#include "nccl_net/setup_socket.h"

namespace gradwire::nccl_net {
namespace {

using Info = std::array<unsigned char, GW_RANK_INFO_BYTES>;

/// NCCL's ranks have just met when they come here.
constexpr auto kBound = std::chrono::seconds(10);
constexpr std::uint32_t kGroupMs = 10'000;
constexpr std::chrono::seconds kWord{5};
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

/// Rank 0: takes greetings of all others.
bool meet(const Listener& listener, Sockets& sockets, std::vector<Info>& infos, std::string& why) {
  const SetupTime deadline = SetupClock::now() + kBound;
  std::size_t missing = infos.size() - 1;
  while (missing > 0) {
    if (!wait_for(listener.socket.get(), POLLIN, deadline)) {
      why = std::to_string(missing) + " ranks have not come for CollNet";
      return false;
    }
    Descriptor socket = Descriptor::accepted_from(listener.socket.get());
    if (!socket) continue;
    Greeting greeting;
    // Who is not meant is sent away, and the others are waited for.
    if (!hear(socket.get(), greeting, SetupClock::now() + kWord) || greeting.magic != kMagic ||
        greeting.listener != listener.token || greeting.nranks != infos.size() ||
        greeting.rank == 0 || greeting.rank >= infos.size() || sockets[greeting.rank]) {
      continue;
    }
    infos[greeting.rank] = greeting.info;
    sockets[greeting.rank] = std::move(socket);
    --missing;
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

bool ask(void* handle, int rank, Told& told, std::vector<Info>& infos, std::string& why) {
  Handle first;
  std::memcpy(&first, handle, sizeof(first));
  if (first.magic != kMagic) {
    why = "rank 0's handle is of another version of the plug-in";
    return false;
  }
  const Descriptor socket = connect_to(first.address, SetupClock::now() + kWord, why);
  if (!socket) return false;
  Greeting greeting;
  greeting.rank = static_cast<std::uint32_t>(rank);
  greeting.nranks = static_cast<std::uint32_t>(infos.size());
  greeting.listener = first.listener;
  greeting.info = infos[static_cast<std::size_t>(rank)];
  const int fd = socket.get();
  // Rank 0 answers when all have come.
  const SetupTime until = SetupClock::now() + kBound + kWord;
  if (say(fd, greeting, until) && hear(fd, told, until) &&
      hear_bytes(fd, infos.data(), infos.size() * sizeof(Info), until)) {
    return true;
  }
  why = "rank 0 of CollNet did not answer: its log says why";
  return false;
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
  gw_client* client = made->clients_->at(0);
  std::vector<Info> infos(static_cast<std::size_t>(nranks));
  Info& own = infos[static_cast<std::size_t>(rank)];
  if (gw_client_describe(client, own.data(), own.size()) != GW_OK) {
    why = gw_last_error();
    return nullptr;
  }
  Told told;
  if (rank > 0) {
    if (!ask(handles[0], rank, told, infos, why)) return nullptr;
  } else {
    Sockets sockets(infos.size());
    if (!fill_random(told.group_id)) {
      why = "there are no random numbers";
      return nullptr;
    }
    if (!meet(listener, sockets, infos, why) || !tell_all(sockets, told, infos, why)) {
      return nullptr;
    }
  }
  made->memory_ = take_memory(client, &made->base_, why);
  if (made->memory_ == nullptr) return nullptr;
  gw_processes_config config{};
  config.struct_bytes = sizeof(config);
  config.epoch = 1;
  config.group_id = told.group_id;
  config.process = static_cast<std::uint32_t>(rank);
  config.processes = static_cast<std::uint32_t>(nranks);
  config.timeout_ms = kGroupMs;
  config.infos = infos.data();
  config.infos_bytes = infos.size() * sizeof(Info);
  if (gw_group_join_processes(client, &config, &made->group_) != GW_OK) {
    why = gw_last_error();
    return nullptr;
  }
  return made;
}

}  // namespace gradwire::nccl_net
