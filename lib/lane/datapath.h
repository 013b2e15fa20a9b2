// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The datapath of a daemon (or of an embedding program) as its control thread sees it: opens the
/// ports, makes mempools and rings, makes the lanes, and carries messages between the control
/// thread and the lanes. Everything is allocated in create(); the destructor expects that no lane
/// runs and that every group was left.
///
/// One thread, the control thread, calls everything here except lane(i).run() and poll_once(),
/// which the lane's own thread calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/defaults.h"
#include "base/result.h"
#include "command/messages.h"
#include "lane/lane.h"
#include "port/payload_pool.h"
#include "port/pools.h"
#include "port/port.h"

namespace gradwire::lane {

struct DatapathConfig {
  std::vector<port::PortConfig> ports;
  std::uint8_t lanes = 1;
  std::uint16_t base_udp_port = defaults::kBaseUdpPort;  ///< lane i listens on base_udp_port + i
  std::uint16_t max_groups =
      static_cast<std::uint16_t>(LimitsSection{}.groups);  ///< at once; sizes the mempools
  /// Groups for transfers alone, beside those.
  std::uint16_t max_transfer_groups = 0;
  /// collective::packet_mbufs_needed() of the largest ShardConfig that a group may have, if its
  /// payload is the argument. create() calls it once.
  std::function<std::uint32_t(std::uint32_t payload_bytes)> mbufs_per_shard = [](std::uint32_t) {
    return 512u;
  };
  std::uint32_t max_payload_bytes = 0;  ///< an upper bound; 0 = what the ports carry
  bool payload_crc = true;  ///< ShardConfig::payload_crc; if false, every port must be a memif
  PollingConfig polling;
  /// false: takes no clients' commands; the embedding program posts with post_ops() and calls
  /// next_report().
  bool command_lane = true;
  std::size_t tx_trace_bursts = 0;  ///< how many bursts each lane remembers for each port; 0 = none
  /// The memory for received and sent payloads; outlives the datapath. nullptr: the host's memory.
  reduce::DeviceMemory* payload_memory = nullptr;
  std::string name = "gw";  ///< prefix for rings and mempools; unique in the process
};

/// A frame that a lane passed to the control thread.
struct ControlFrame {
  std::uint16_t port = 0;  ///< index into DatapathConfig::ports
  std::size_t size = 0;
  std::array<std::byte, kControlFrameBytes> bytes{};
};

class Datapath {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Datapath>> create(const DatapathConfig& config);
  ~Datapath();
  Datapath(const Datapath&) = delete;
  Datapath& operator=(const Datapath&) = delete;

  [[nodiscard]] std::uint8_t lanes() const noexcept {
    return static_cast<std::uint8_t>(lanes_.size());
  }
  [[nodiscard]] Lane& lane(std::uint8_t index) noexcept { return *lanes_[index]; }
  [[nodiscard]] const port::LanePools& pools(std::uint8_t lane) const noexcept {
    return *pools_[lane];
  }
  /// @return nullptr if payloads follow their headers, in mbufs of pools().
  [[nodiscard]] const port::PayloadPool* payloads(std::uint8_t lane) const noexcept {
    return payloads_.empty() ? nullptr : payloads_[lane].get();
  }
  [[nodiscard]] std::span<const std::unique_ptr<port::Port>> ports() const noexcept {
    return ports_;
  }
  /// The largest payload of a chunk that every port can carry.
  [[nodiscard]] std::uint32_t max_payload_bytes() const noexcept { return max_payload_bytes_; }

  /// The request is the lane's until its kRequestDone notice brings it back.
  /// @return false where the lane's ring is full: receive notices, then try again.
  [[nodiscard]] bool send(std::uint8_t lane, command::Request* request) noexcept;
  [[nodiscard]] bool receive(command::Notice& notice) noexcept;

  /// Without a command lane only: the thread that drives lane 0 calls both.
  /// @return false where the lane's ring is full.
  [[nodiscard]] bool post_ops(std::uint8_t lane, command::LaneOps ops) noexcept;
  [[nodiscard]] bool next_report(command::LaneReport& report) noexcept;

  /// Takes an ARP frame that a port received.
  [[nodiscard]] bool receive_frame(ControlFrame& frame) noexcept;
  /// How many frames receive_frame() could take now.
  [[nodiscard]] std::size_t frames_waiting() const noexcept;
  /// Sends a frame out of a port, by lane 0. @return false where there is no room for now.
  [[nodiscard]] bool send_frame(std::uint16_t port, std::span<const std::byte> frame) noexcept;

  /// How many rounds each lane has made. A working lane makes at least one each millisecond.
  [[nodiscard]] std::vector<std::uint64_t> lane_rounds() const;
  /// Control thread, every few milliseconds: see Port::tend(). @return what happened, one line for
  /// each event.
  [[nodiscard]] std::vector<std::string> tend_links(TimeNs now);

  /// The control thread's sleep: sleeping(true), receive() and receive_frame() once more, wait for
  /// event_fd() to be readable, sleeping(false), which also empties it.
  [[nodiscard]] int event_fd() const noexcept { return control_bell_.fd(); }
  void set_sleeping(bool sleeping) noexcept;
  /// Any thread: makes event_fd() readable if the control thread sleeps.
  void wake_control() noexcept { control_bell_.ring(); }
  /// Wakes a lane's run(), so that it looks at its stop flag.
  void wake(std::uint8_t lane) noexcept { bells_[lane]->force(); }

 private:
  struct Opened;

  Datapath() = default;
  [[nodiscard]] Result<void> open_ports(const DatapathConfig& config, Opened& out);
  [[nodiscard]] Result<void> start_ports(const DatapathConfig& config, const Opened& opened);
  [[nodiscard]] Result<void> make_lanes(const DatapathConfig& config);
  [[nodiscard]] Result<void> make_rings(const DatapathConfig& config, std::uint32_t exchange_mbufs);
  [[nodiscard]] Result<rte_ring*> make_ring(const std::string& name, std::size_t element,
                                            unsigned count, unsigned flags);

  std::vector<std::unique_ptr<port::Port>> ports_;
  std::vector<std::unique_ptr<port::LanePools>> pools_;
  std::vector<std::unique_ptr<port::PayloadPool>> payloads_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<std::unique_ptr<command::WakeBell>> bells_;
  command::WakeBell control_bell_;
  std::vector<command::LaneRings> lane_rings_;
  command::SharedRings shared_;
  std::vector<rte_ring*> owned_rings_;
  std::uint32_t max_payload_bytes_ = 0;
};

}  // namespace gradwire::lane
