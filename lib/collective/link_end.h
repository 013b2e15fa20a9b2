// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The other end of a link: which rank it is, how packets get there and how those from there are
/// told from others. The table of the group gives it, but for the connection id, which the rank's
/// hello brings. One lane owns it.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <cstdint>
#include <span>

#include "collective/place.h"
#include "collective/shard_status.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// What the group's table says of a link.
struct LinkAddress {
  LinkIndex index = 0;
  std::uint16_t rank = 0;
  std::uint8_t lane = 0;
  std::uint8_t flags = 0;         ///< of packets that go there
  bool gets_data = false;         ///< data goes there, acknowledgements come from there
  bool brings_data = false;       ///< the other way round
  std::uint32_t own_id = 0;       ///< our connection id, for packets from there
  std::uint64_t incarnation = 0;  ///< of its daemon
  std::uint64_t token = 0;        ///< of the link: packets carry it both ways
  wire::IpAddress ip;             ///< where packets from there come from
  wire::FrameTemplate frame;      ///< before packets that go there
};

/// Numbers of control packets: above every number that a sender or receiver ever takes, so that no
/// number is used twice.
class ControlNumbers {
 public:
  [[nodiscard]] std::uint64_t next() noexcept { return wire::kFirstControlNumber | ++last_; }

 private:
  std::uint64_t last_ = 0;
};

class LinkEnd {
 public:
  LinkEnd(const LinkAddress& address, ControlNumbers& numbers) noexcept
      : address_(address), numbers_(numbers) {}

  [[nodiscard]] const LinkAddress& address() const noexcept { return address_; }
  [[nodiscard]] std::uint16_t rank() const noexcept { return address_.rank; }
  /// Whether its hello or hello-ack came: its connection id is known.
  [[nodiscard]] bool open() const noexcept { return open_; }
  /// The id is set once. @return whether `id` is it.
  bool learn_connection_id(std::uint32_t id) noexcept {
    if (!open_) {
      open_ = true;
      connection_id_ = id;
    }
    return connection_id_ == id;
  }

  /// What every packet that goes there begins with. A hello comes before its connection id is
  /// known.
  [[nodiscard]] wire::CommonHeader header(wire::PacketType type,
                                          std::uint64_t packet_number) const noexcept {
    return {type,          address_.flags,
            address_.lane, type == wire::PacketType::kHello ? 0 : connection_id_,
            packet_number, address_.token};
  }
  [[nodiscard]] wire::CommonHeader control_header(wire::PacketType type) const noexcept {
    return header(type, numbers_.next());
  }
  [[nodiscard]] OutboxSide& side(Outbox& out) const noexcept { return out.links[address_.index]; }

  /// Encodes a packet without payload of its own class into a fresh mbuf and puts it in the box.
  /// @param encode  bytes that it wrote into the span it got; 0 if they do not fit.
  /// @return whether there was room for it.
  template <class Encode>
  bool send(rte_mempool* pool, OutboxSide& box, Encode&& encode) const noexcept {
    if (box.full()) return false;
    rte_mbuf* mbuf = rte_pktmbuf_alloc(pool);
    if (mbuf == nullptr) return false;
    const wire::FrameTemplate& frame = address_.frame;
    auto* start = rte_pktmbuf_mtod(mbuf, std::byte*);
    const std::size_t room = rte_pktmbuf_tailroom(mbuf);
    const std::size_t bytes =
        room > frame.bytes()
            ? encode(std::span<std::byte>(start + frame.bytes(), room - frame.bytes()))
            : 0;
    if (bytes == 0) {
      rte_pktmbuf_free(mbuf);
      return false;
    }
    frame.write(start, bytes);
    mbuf->data_len = static_cast<std::uint16_t>(frame.bytes() + bytes);
    mbuf->pkt_len = mbuf->data_len;
    box.put(mbuf);
    return true;
  }

 private:
  const LinkAddress address_;
  ControlNumbers& numbers_;
  std::uint32_t connection_id_ = 0;
  bool open_ = false;
};

}  // namespace gradwire::collective
