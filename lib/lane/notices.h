// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Sends a lane's notices to the control thread. The lane's thread owns it; nothing allocates.
#pragma once

#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <cstdint>

#include "base/types.h"
#include "command/links.h"
#include "command/messages.h"

namespace gradwire::lane {

class Notices {
 public:
  Notices(const command::SharedRings& shared, std::uint8_t lane) noexcept
      : shared_(shared), lane_(lane) {}

  /// Call it before each of the functions below.
  [[nodiscard]] bool have_room() const noexcept {
    return rte_ring_free_count(shared_.notices) > kReserve;
  }
  void send(const command::Notice& notice) noexcept { send(notice, lane_); }
  /// Sends it on behalf of another lane.
  void send(const command::Notice& notice, std::uint8_t lane) noexcept {
    command::Notice sent = notice;
    sent.lane = lane;
    rte_ring_mp_enqueue_elem(shared_.notices, &sent, sizeof sent);
    shared_.control_bell->ring();
  }
  void send_done(command::Request& request) noexcept {
    command::Notice notice;
    notice.type = command::NoticeType::kRequestDone;
    notice.group_handle = request.group_handle;
    notice.client_id = request.client_id;
    notice.request = &request;
    send(notice);
  }

 private:
  /// All lanes may find room at the same moment, and then each sends one notice.
  static constexpr unsigned kReserve = 2 * kMaxLanes;

  command::SharedRings shared_;
  std::uint8_t lane_;
};

}  // namespace gradwire::lane
