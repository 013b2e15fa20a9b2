// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// One group's share on one lane: the ring schedule, the two connections (to the downstream rank
/// and from the upstream rank), formation, abort and leave. It takes decoded packets and time, and
/// gives frames ready to transmit and events. It knows no port, clock, socket or thread, so the
/// simulator runs the very same object.
///
/// create() runs on the control thread and is the only place that allocates (mempools apart); from
/// then on one lane owns the object; every other call is noexcept and bounded.
#pragma once

#include <rte_mbuf.h>

#include <cstdint>
#include <memory>

#include "base/abort_reason.h"
#include "base/result.h"
#include "reduce/backend.h"
#include "ring/op_spec.h"
#include "ring/shard_config.h"
#include "ring/shard_status.h"
#include "wire/packet.h"

namespace gradwire::ring {

class Shard {
 public:
  /// Checks the configuration's bounds. nranks 1 has no neighbours: templates and ids are unused.
  [[nodiscard]] static Result<std::unique_ptr<Shard>> create(
      const ShardConfig& config, std::unique_ptr<reduce::Backend> backend);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  void start(TimeNs now) noexcept;

  /// Posts the next op. Copies `spec`.
  [[nodiscard]] PostResult post(const OpSpec& spec, TimeNs now) noexcept;

  /// @return whether a hello (it carries no connection id yet) is for this shard.
  [[nodiscard]] bool wants_hello(const wire::HelloBody& hello, std::uint8_t lane) const noexcept;

  /// @return whether it comes from a neighbour's address with the link's token. on_packet() counts
  /// and drops any other.
  [[nodiscard]] bool is_neighbours(const wire::Packet& packet,
                                   const wire::IpAddress& source) const noexcept;

  /// Takes a received frame and owns it from then on. `packet` is its decoded form, pointing into
  /// it; `source` the IP address it came from. Work on payloads waits for flush().
  void on_packet(rte_mbuf* frame, const wire::Packet& packet, const wire::IpAddress& source,
                 bool ecn_ce, TimeNs now) noexcept;
  /// End of a receive burst: reduces and stores what it brought.
  void flush(TimeNs now) noexcept;

  /// Sends what may go: acknowledgements, retransmissions, transit, spilled chunks, own chunks;
  /// handles timers. `idle`: no packet came in this round. Call it every round of the loop.
  /// @return whether it did anything.
  bool poll(TimeNs now, bool idle, Outbox& out) noexcept;
  /// Earliest time at which poll() has something to do without a packet or a post; kNever if none.
  [[nodiscard]] TimeNs deadline(TimeNs now) const noexcept;

  /// Ends the group on this rank with an error and tells both neighbours.
  void abort(const AbortReason& reason, TimeNs now) noexcept;
  /// Nothing more will be posted: finish, say bye, close. Unfinished ops at that time abort.
  void leave(TimeNs now) noexcept;

  /// @return whether an event was taken.
  [[nodiscard]] bool pop_event(Event& out) noexcept;

  [[nodiscard]] const AbortReason& reason() const noexcept;
  [[nodiscard]] const ShardConfig& config() const noexcept;
  [[nodiscard]] const ShardCounters& counters() const noexcept;
  [[nodiscard]] const char* backend_name() const noexcept;
  [[nodiscard]] const reduce::BackendCounters& backend_counters() const noexcept;
  [[nodiscard]] ShardStatus status(TimeNs now) const noexcept;

 private:
  class Impl;
  explicit Shard(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gradwire::ring
