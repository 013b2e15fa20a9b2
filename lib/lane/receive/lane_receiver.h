// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// From a lane's ports to its shards: received frames are classified, checked, counted, and handed
/// to the shard that they are for, to the control thread, or to nobody. One lane owns it; time is a
/// parameter; adding a group allocates, and nothing else does.
///
///   lane_receiver.cc          bursts, runs of data packets, and which group a packet is for
///   lane_receiver_control.cc  frames that are none of a shard's
///   lane_receiver_unfit.cc    packets that say why a group does not form
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/data_runs.h"
#include "collective/links/packet_source.h"
#include "lane/counters.h"
#include "lane/group_slots.h"
#include "lane/lane_config.h"
#include "lane/lane_port.h"
#include "lane/receive/group_index.h"
#include "lane/rests.h"
#include "port/fault_stage.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::lane {

/// How much of a frame the control thread gets: neighbor discovery has options of any length.
inline constexpr std::size_t kControlFrameBytes = 768;

class LaneReceiver {
 public:
  static constexpr std::uint16_t kMaxBurst = port::FaultStage::kBurst;
  /// Frames are received first, and then their payloads are read again to be checked and reduced.
  /// More bytes than the L1 cache holds would be fetched twice, and the neighbor would wait until
  /// the end.
  static constexpr std::uint32_t kRoundBytes = 32u << 10;

  /// All outlive it.
  LaneReceiver(const LaneConfig& config, std::vector<LanePort>& ports, GroupSlots& slots,
               Rests& rests, LaneCounters& counters);

  /// What has come by each port since the last call. @return whether anything has.
  bool receive(TimeNs now) noexcept;
  /// Whether data was among it; pings and acknowledgements do not count.
  [[nodiscard]] bool flowed() const noexcept { return flowed_; }

  /// Packets of that group go to its shard from now on.
  void add_group(const GroupSlot& slot);
  void remove_group(const GroupSlot& slot) noexcept;

 private:
  // lane_receiver.cc
  [[gnu::always_inline]] inline void receive_frame(std::uint16_t port_index, rte_mbuf* frame,
                                                   TimeNs now) noexcept;
  /// A frame that does not go on with the run that is under way, which ends.
  void receive_unlike(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  /// Finds the group with the tag of packet_ whose neighbor sent it; if there is none, any group
  /// with that tag.
  /// @return its slot; kNoSlot if there is none.
  [[nodiscard]] std::uint16_t slot_of(const wire::IpAddress& source,
                                      collective::PacketSource& from) const noexcept;
  [[nodiscard]] wire::Drop open_packet(collective::Shard& shard, rte_mbuf*& frame,
                                       wire::FrameView& view,
                                       std::span<const std::byte>& packet) const noexcept;
  void receive_packet(std::uint16_t port_index, rte_mbuf* frame, wire::FrameView& view,
                      TimeNs now) noexcept;
  void touch(std::uint16_t index) noexcept;
  /// Handles a frame of several segments.
  void receive_segments(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  void receive_split(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  void receive_whole(std::uint16_t port_index, rte_mbuf* frame, TimeNs now) noexcept;
  [[nodiscard]] bool is_of_a_rank(const wire::FrameView& view) noexcept;
  [[nodiscard]] static bool is_split_chunk(const rte_mbuf* frame,
                                           const wire::FrameView& view) noexcept;
  [[nodiscard]] bool gather(rte_mbuf* frame) noexcept;
  /// Whether a UDP datagram is addressed to this lane, by IP address and port.
  [[nodiscard]] bool is_for_lane(const LanePort& port, const wire::FrameView& view) const noexcept;
  void drop(rte_mbuf* frame, wire::Drop why) noexcept;

  // lane_receiver_control.cc
  /// @param sender  what tells it from others.
  void pass_to_control(std::uint16_t port_index, rte_mbuf* frame, std::span<const std::byte> sender,
                       TimeNs now) noexcept;
  void echo(std::uint16_t port_index, rte_mbuf* frame, const wire::FrameView& view,
            TimeNs now) noexcept;
  void too_big(std::uint16_t port_index, rte_mbuf* frame, const wire::FrameView& view,
               TimeNs now) noexcept;

  // lane_receiver_unfit.cc
  static constexpr TimeNs kNoteNs = 1'000'000;  ///< between notes of what does not fit
  void note_other_group(const wire::FrameView& view, TimeNs now) noexcept;
  void note_other_version(const wire::FrameView& view, TimeNs now) noexcept;
  void note_unfit_hello(collective::Shard& shard, wire::Drop drop,
                        const wire::IpAddress& source) const noexcept;

  const LaneConfig& config_;
  std::vector<LanePort>& ports_;
  GroupSlots& slots_;
  Rests& rests_;
  LaneCounters& counters_;
  GroupIndex groups_;                   ///< those that are not closed
  std::vector<std::uint16_t> touched_;  ///< slots of groups for which packets came in this round
  wire::Packet packet_;
  wire::FrameView view_;  ///< what the frame says that is being handled
  collective::DataRuns runs_;
  std::uint16_t run_slot_ = 0;  ///< whose group the runs are for
  TimeNs next_version_note_ = 0;
  bool flowed_ = false;
};

}  // namespace gradwire::lane
