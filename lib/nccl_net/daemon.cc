// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/daemon.h"

#include <unistd.h>

#include <charconv>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "nccl_net/log.h"
#include "nccl_net/quiet_thread.h"
#include "nccl_net/segments.h"

namespace gradwire::nccl_net {
namespace {

constexpr std::size_t kStatusBytesMax = 16u << 20;
/// How often, and after how long, memory is given back that is still in use.
constexpr int kFreeTries = 200;
constexpr unsigned kFreeUs = 10'000;
/// A client may have GW_MAX_TRANSFERS unfinished, and a link all that it has places for.
constexpr std::uint32_t kLinksOfClient = GW_MAX_TRANSFERS / (2 * Segments::kSlots);
/// What NCCL is told of a port that does not say how fast it is, such as a memif link.
constexpr int kUnknownMbps = 10'000;

std::string last_error() { return gw_last_error(); }

/// "up 25000 Mbit/s full duplex"; a link without a speed is "up".
int speed_of(std::string_view link) {
  constexpr std::string_view kUp = "up ";
  int mbps = 0;
  if (link.starts_with(kUp)) {
    std::from_chars(link.data() + kUp.size(), link.data() + link.size(), mbps);
  }
  return mbps > 0 ? mbps : kUnknownMbps;
}

std::string resolved(const std::string& path) {
  char found[PATH_MAX];
  return realpath(path.c_str(), found) != nullptr ? found : "";
}

/// A port is named by its PCI address, or "net_af_xdp0,iface=eth1" and the like.
std::string pci_path_of(const std::string& device) {
  std::string path = resolved("/sys/bus/pci/devices/" + device);
  const std::size_t at = device.find("iface=");
  if (path.empty() && at != std::string::npos) {
    const std::string interface = device.substr(at + 6, device.find(',', at) - at - 6);
    path = resolved("/sys/class/net/" + interface + "/device");
  }
  return path;
}

bool read_status(std::string& text, std::string& why) {
  std::vector<char> room(64 * 1024);
  std::size_t needed = 0;
  gw_status status = gw_daemon_status(nullptr, 0, room.data(), room.size(), &needed);
  // It may grow between two calls.
  for (int tries = 0; status == GW_RESOURCE_EXHAUSTED && tries < 3; ++tries) {
    if (needed > kStatusBytesMax) break;
    room.resize(needed + needed / 4);
    status = gw_daemon_status(nullptr, 0, room.data(), room.size(), &needed);
  }
  if (status != GW_OK) {
    why = last_error();
    return false;
  }
  text = room.data();
  return true;
}

}  // namespace

std::shared_ptr<Clients> Clients::open(std::string& why) {
  std::shared_ptr<Clients> made(new Clients);
  if (gw_open(nullptr, nullptr, &made->first_) != GW_OK) {
    why = last_error();
    return nullptr;
  }
  made->shared_.push_back({made->first_, 0});
  return made;
}

Clients::~Clients() {
  for (const Shared& one : shared_) gw_close(one.client);
}

bool Clients::answer(std::string& why) const {
  RankInfo info;
  return describe(first_, info, why);
}

gw_client* Clients::take_place(std::string& why) {
  const std::lock_guard lock(mutex_);
  for (Shared& one : shared_) {
    if (one.links < kLinksOfClient) {
      ++one.links;
      return one.client;
    }
  }
  gw_client* client = nullptr;
  if (gw_open(nullptr, nullptr, &client) != GW_OK) {
    why = last_error();
    return nullptr;
  }
  shared_.push_back({client, 1});
  return client;
}

void Clients::give_place(gw_client* client) {
  const std::lock_guard lock(mutex_);
  for (auto one = shared_.begin(); one != shared_.end(); ++one) {
    if (one->client != client) continue;
    if (--one->links > 0 || client == first_) return;
    gw_close(client);
    shared_.erase(one);
    return;
  }
}

bool describe(gw_client* client, RankInfo& info, std::string& why) {
  if (gw_client_describe(client, info.data(), info.size()) == GW_OK) return true;
  why = last_error();
  return false;
}

gw_memory* take_memory(gw_client* client, std::uint64_t bytes, char** base, std::string& why) {
  gw_memory* memory = nullptr;
  if (gw_memory_alloc(client, bytes, &memory) != GW_OK) {
    why = last_error();
    return nullptr;
  }
  if (gw_memory_device(memory) != -1) {
    why =
        "the daemon's gradient memory is on a GPU, where this plug-in cannot copy to: set "
        "client_memory = \"host\" in the daemon's [gpu]";
    free_memory(memory);
    return nullptr;
  }
  *base = static_cast<char*>(gw_memory_address(memory));
  return memory;
}

void free_memory(gw_memory* memory) {
  gw_status status = gw_memory_free(memory);
  for (int tries = 0; status == GW_BUSY && tries < kFreeTries; ++tries) {
    usleep(kFreeUs);
    status = gw_memory_free(memory);
  }
  if (status != GW_OK) warn("gradient memory is not given back: %s", gw_last_error());
}

void free_memory_beside(gw_memory* memory, const std::shared_ptr<Clients>& clients) {
  if (memory == nullptr) return;
  try {
    start_quietly([memory, clients] { free_memory(memory); });
  } catch (const std::exception&) {  // there are no more threads
    free_memory(memory);
  }
}

bool read_facts(DeviceFacts& facts, std::string& why) {
  std::string text;
  if (!read_status(text, why)) return false;
  facts = {.name = "gradwire0", .pci_path = "", .speed_mbps = 0};
  const nlohmann::json status = nlohmann::json::parse(text, nullptr, false);
  if (status.is_discarded() || !status.contains("ports") || !status["ports"].is_array()) {
    why = "the daemon's status has no ports";
    return false;
  }
  for (const nlohmann::json& port : status["ports"]) {
    if (!port.is_object()) continue;
    facts.speed_mbps += speed_of(port.value("link", ""));
    if (facts.pci_path.empty()) facts.pci_path = pci_path_of(port.value("device", ""));
  }
  return true;
}

}  // namespace gradwire::nccl_net
