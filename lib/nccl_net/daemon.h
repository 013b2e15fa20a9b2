// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// This process's clients of the daemon. GRADWIRE_SOCKET names the daemon, as everywhere. Links
/// share clients, as many as have room for their transfers; if the daemon goes away its links fail,
/// and the next link opens new clients. Any thread; it allocates, and waits for the daemon for 5 s
/// at most.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "client/gradwire.h"

namespace gradwire::nccl_net {

class Clients {
 public:
  /// @return nullptr: `why` says what is wrong.
  static std::shared_ptr<Clients> open(std::string& why);
  ~Clients();
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  [[nodiscard]] gw_client* first() const { return first_; }
  /// Whether the daemon is still there.
  bool answer(std::string& why) const;
  /// A client with room for one more link. @return nullptr: `why` says what is wrong.
  gw_client* take_place(std::string& why);
  /// The link has ended. nullptr is fine.
  void give_place(gw_client* client);

 private:
  struct Shared {
    gw_client* client = nullptr;
    std::uint32_t links = 0;
  };

  Clients() = default;
  gw_client* first_ = nullptr;
  std::mutex mutex_;
  std::vector<Shared> shared_;
};

using RankInfo = std::array<unsigned char, GW_RANK_INFO_BYTES>;
/// How daemons and processes find a client.
bool describe(gw_client* client, RankInfo& info, std::string& why);

/// Gradient memory, in *base. @return nullptr: `why` says what is wrong.
gw_memory* take_memory(gw_client* client, std::uint64_t bytes, char** base, std::string& why);
/// When the daemon has let go of it, which may take 2 s after a group was left. nullptr is fine.
void free_memory(gw_memory* memory);
/// The same by a thread of its own, so that a caller of NCCL's does not wait.
void free_memory_beside(gw_memory* memory, const std::shared_ptr<Clients>& clients);

/// What NCCL is told of the one device.
struct DeviceFacts {
  std::string name;      ///< "gradwire0"
  std::string pci_path;  ///< in /sys; empty: the ports are no PCI devices
  int speed_mbps = 0;    ///< of the ports together
};
/// Asks the daemon. @return false: `why` says what is wrong.
bool read_facts(DeviceFacts& facts, std::string& why);

}  // namespace gradwire::nccl_net
