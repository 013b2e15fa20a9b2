// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// All that the control plane needs of lanes and ports. The daemon implements it over rte_rings and
/// its ports; tests implement it in memory. The control thread alone calls it, and no call blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fault_settings.h"
#include "base/result.h"
#include "base/types.h"
#include "collective/shard.h"
#include "command/messages.h"
#include "lane/trace_ring.h"
#include "port/fault_stage.h"
#include "reduce/backend.h"
#include "reduce/gpu/device.h"
#include "status/daemon_status.h"
#include "wire/frame.h"

namespace gradwire::control {

/// One address of this daemon. `port` is what ShardPlacement's down_port and up_port mean.
struct LocalAddress {
  std::uint16_t port = 0;
  wire::IpAddress ip;
  std::uint8_t prefix_bits = 0;
};

/// One way of frames to a neighbour: both ends choose the same two addresses, since they choose
/// from the same table by the same rule (see common_addresses).
struct NeighbourPath {
  std::uint16_t rank = 0;
  std::uint64_t incarnation = 0;
  std::uint16_t port = 0;
  wire::IpAddress local_ip;
  wire::IpAddress remote_ip;
  std::optional<wire::MacAddress> remote_mac;  ///< none until it has answered
  std::uint16_t remote_base_udp_port = 0;      ///< its lane i listens there + i
};

/// The ways to one neighbour are shared out among the lanes: rails. `paths` is not empty.
[[nodiscard]] inline const NeighbourPath& path_of(std::span<const NeighbourPath> paths,
                                                  std::uint8_t lane) noexcept {
  return paths[lane % paths.size()];
}

struct PlanRequest {
  GroupKey key;
  std::uint16_t rank = 0;
  std::uint16_t nranks = 1;
  std::uint16_t member_count = 1;
  std::uint8_t lanes = 1;  ///< the group's: at most this daemon's
  std::uint32_t payload_bytes = 0;
  std::uint64_t table_digest = 0;
  std::uint64_t incarnation = 0;
  std::uint64_t upstream_token = 0;  ///< link_token() of the two links
  std::uint64_t downstream_token = 0;
  std::vector<NeighbourPath> downstream;  ///< as path_of() takes them; none where nranks is 1
  std::vector<NeighbourPath> upstream;
  TimeNs formation_ns = 0;  ///< for ShardTimeouts: a little past the manager's own bound
};

/// What shards reduced, by backend ("cpu avx2", "emu", "cuda") and path.
struct ReduceTotal {
  std::string backend;
  std::string path;
  reduce::BackendCounters counters;
};
/// Adds to the total of that backend and path.
void add_to(std::vector<ReduceTotal>& totals, const char* backend, const char* path,
            const reduce::BackendCounters& counters);

/// A port as fault injection knows it.
struct PortFaults {
  std::string device;
  FaultSettings faults;         ///< as they were set last
  bool splits_payload = false;  ///< payloads lie in a GPU's memory
};

enum class ResolveState : std::uint8_t { kPending, kResolved, kFailed };
struct Resolution {
  ResolveState state = ResolveState::kPending;
  wire::MacAddress mac{};
  std::string error;  ///< kFailed: what can never work, such as an unsupported family
};

class LaneControl {
 public:
  virtual ~LaneControl() = default;

  [[nodiscard]] virtual std::uint8_t lanes() const = 0;
  [[nodiscard]] virtual std::span<const LocalAddress> addresses() const = 0;

  /// Puts `request` into the lane's ring. It stays the manager's object, and comes back in a
  /// kRequestDone notice.
  /// @return false where the ring is full: the manager tries again.
  [[nodiscard]] virtual bool send(std::uint8_t lane, command::Request* request) = 0;
  /// @return whether there was a notice.
  [[nodiscard]] virtual bool next_notice(command::Notice& out) = 0;

  /// Starts to find the MAC address of `ip` behind `port`, or tells how far that is. Called again
  /// until it says more than kPending; it repeats ARP requests without end, the manager has the
  /// bound.
  [[nodiscard]] virtual Resolution resolve(std::uint16_t port, const wire::IpAddress& ip) = 0;

  /// Makes a plan with `request.lanes` shards: frame templates, connection ids, mempools, backends.
  /// The manager fills group_handle and member_clients.
  [[nodiscard]] virtual Result<command::GroupPlan*> create_plan(const PlanRequest& request) = 0;
  /// Destroys a plan that no lane refers to, and takes its connection ids back.
  virtual void destroy_plan(command::GroupPlan* plan) = 0;

  [[nodiscard]] virtual collective::ShardStatus shard_status(const command::GroupPlan& plan,
                                                             std::uint8_t lane,
                                                             TimeNs now) const = 0;
  /// Whether client memory is registered, as a GPU wants it, before any op may refer to it, until
  /// none does any more. That takes the longer the more memory it is, so these two are the worker's
  /// to call, and the control thread's only when there is no worker any more.
  [[nodiscard]] virtual bool registers_memory() const { return false; }
  [[nodiscard]] virtual Result<void> register_memory(std::byte* /*address*/,
                                                     std::uint64_t /*bytes*/) {
    return {};
  }
  virtual void unregister_memory(std::byte* /*address*/) {}

  /// Where clients' gradient memory is made: on a GPU that the lanes reduce on, or (false) in
  /// hugepages of the host.
  [[nodiscard]] virtual bool makes_memory_on_gpu() const { return false; }
  [[nodiscard]] virtual Result<reduce::SharedGpuMemory> allocate_on_gpu(std::uint64_t /*bytes*/) {
    return fail(ErrorCode::kUnsupported, "there is no GPU");
  }
  virtual void free_on_gpu(std::byte* /*address*/) {}
  [[nodiscard]] virtual Result<reduce::SharedReadyEvent> make_ready_event() {
    return fail(ErrorCode::kUnsupported, "there is no GPU");
  }

  /// What each port does wrong on purpose, by port. note_faults() is told with the lanes.
  [[nodiscard]] virtual const std::vector<PortFaults>& port_faults() const = 0;
  virtual void note_faults(std::uint16_t port, const FaultSettings& faults) = 0;
  /// nullptr where there is no such lane or port.
  [[nodiscard]] virtual const port::FaultCounters* fault_counters(std::uint16_t port,
                                                                  std::uint8_t lane) const = 0;

  /// What was reduced by groups that are gone, by backend and path.
  [[nodiscard]] virtual std::vector<ReduceTotal> reduce_totals() const { return {}; }
  /// What shards of groups that are gone counted on the lane.
  [[nodiscard]] virtual collective::ShardCounters shard_totals(std::uint8_t /*lane*/) const {
    return {};
  }
  /// The lane's last events of ops, oldest first.
  [[nodiscard]] virtual std::vector<lane::TraceEvent> trace(std::uint8_t /*lane*/) const {
    return {};
  }
  /// What the lane published last of its groups, in one look: the status asks for all at once.
  [[nodiscard]] virtual std::vector<command::PublishedStatus> published(
      std::uint8_t lane) const = 0;
  /// Each port: what it is, and what its driver counts.
  [[nodiscard]] virtual std::vector<status::Port> ports_status() const { return {}; }
  /// What the lane reports of itself, for the status: core, polling, ports, counters.
  [[nodiscard]] virtual status::Lane lane_status(std::uint8_t lane) const = 0;
};

}  // namespace gradwire::control
