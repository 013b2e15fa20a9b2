// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// This process's clients of the daemon. GRADWIRE_SOCKET names the daemon, as everywhere. Links
/// share the clients; if the daemon goes away its links fail, and the next link opens new clients.
/// Any thread; it allocates, and waits for the daemon for 5 s at most.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "client/gradwire.h"
#include "nccl_net/messages.h"

namespace gradwire::nccl_net {

class Clients {
 public:
  /// @return nullptr: `why` says what is wrong.
  static std::shared_ptr<Clients> open(std::string& why);
  ~Clients();
  Clients(const Clients&) = delete;
  Clients& operator=(const Clients&) = delete;

  [[nodiscard]] gw_client* at(std::uint32_t i) const { return clients_[i]; }
  /// How daemons and processes find these clients.
  bool describe(Hello& hello, std::string& why) const;

 private:
  Clients() = default;
  std::array<gw_client*, kClients> clients_{};
};

/// Gradient memory for kSlots segments, in *base. @return nullptr: `why` says what is wrong.
gw_memory* take_memory(gw_client* client, char** base, std::string& why);
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
