// SPDX-License-Identifier: BSD-3-Clause
// Packets that say why a group does not form: of another version, of another epoch, of another
// table.
#include "lane/receive/lane_receiver.h"

namespace gradwire::lane {

/// Remembers that a group's neighbor speaks another version, so that the group can say why it does
/// not form. Checked rarely, because there may be many such packets.
void LaneReceiver::note_other_version(const wire::FrameView& view, TimeNs now) noexcept {
  if (now < next_version_note_ || !groups_.has_neighbor(view.source_ip)) return;
  next_version_note_ = now + kNoteNs;
  for (const std::uint16_t index : slots_.in_use()) {
    slots_[index].shard->on_other_version(view.source_ip, wire::version_of(view.payload));
  }
}

/// Remembers a hello of a group that is not here: its neighbor may join another epoch of one
/// that is.
void LaneReceiver::note_other_group(const wire::FrameView& view, TimeNs now) noexcept {
  if (packet_.common.type != wire::PacketType::kHello || packet_.common.sealed != 0 ||
      now < next_version_note_ || !groups_.has_neighbor(view.source_ip)) {
    return;
  }
  next_version_note_ = now + kNoteNs;
  if (wire::decode_body(view.payload, packet_) != wire::Drop::kNone) return;
  for (const std::uint16_t index : slots_.in_use()) {
    slots_[index].shard->on_other_group(view.source_ip, packet_.hello.key);
  }
}

/// A hello of the group that does not fit. If its tag does not, somebody else may have sent it.
void LaneReceiver::note_unfit_hello(collective::Shard& shard, wire::Drop drop,
                                    const wire::IpAddress& source) const noexcept {
  if (drop == wire::Drop::kUnsealed) {
    shard.on_unsealed_hello(source);
  } else if (drop == wire::Drop::kForeign || drop == wire::Drop::kToken) {
    shard.on_unfit_hello(source, packet_.common.from_rank);
  }
}

}  // namespace gradwire::lane
