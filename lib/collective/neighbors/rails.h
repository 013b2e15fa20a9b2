// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Several ways to a rank: by which path and source port packets go to neighbors, and how a way is
/// asked whether it is good (doc/protocol/paths.md, Rails). Which way is best each link's
/// PathChoice decides. One lane owns it; it allocates nothing.
#pragma once

#include <cstdint>

#include "collective/neighbors/greetings.h"
#include "collective/neighbors/neighbors.h"
#include "collective/shard_config.h"
#include "wire/packet.h"

namespace gradwire::collective {

class Rails {
 public:
  /// All but the configuration outlive it.
  Rails(const ShardConfig& config, Neighbors& neighbors, Greetings& greetings,
        ShardCounters& counters);

  /// Whether packets go to some rank by more than one path.
  [[nodiscard]] bool several_paths() const noexcept { return several_paths_; }
  /// Whether some link has a choice of paths or source ports: then run() and ask() are called.
  [[nodiscard]] bool watches_paths() const noexcept { return watches_paths_; }
  /// By which of the lane's ports frames of Outbox::down() and up() go.
  [[nodiscard]] std::uint16_t down_port() const noexcept;
  [[nodiscard]] std::uint16_t up_port() const noexcept;
  /// Since when the link down has its path; 0: since the group formed.
  [[nodiscard]] TimeNs path_since() const noexcept { return path_since_; }

  /// By which path the other rank sends, what answers it goes back.
  /// @param end  the packet's sender.
  [[gnu::noinline]] static void note_path(const wire::Packet& packet, PathIndex path,
                                          LinkEnd& end) noexcept;
  /// The rank before asks by hellos, since it hears no acknowledgement, and says from which of this
  /// rank's source ports an answer came.
  void note_source(Link& link, const wire::HelloBody& hello, PathIndex path, bool forming,
                   TimeNs now) noexcept;
  /// A round of the lane while the group lives.
  /// @param round  time that this lane has polled since the last call.
  /// @return whether a link took another path: its port may have less room than the outbox says.
  bool run(TimeNs round, TimeNs now, Outbox& out) noexcept;
  /// Sends the hellos by which ways are asked. @return whether there was one.
  bool ask(Outbox& out) noexcept;

 private:
  Neighbors& neighbors_;
  Greetings& greetings_;
  ShardCounters& counters_;
  const bool several_paths_;
  const bool watches_paths_;
  TimeNs path_since_ = 0;
};

}  // namespace gradwire::collective
