// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The other end of a link: which rank it is, how packets get there and how those from there are
/// told from others. The table of the group gives it. One lane owns it.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <cstdint>
#include <span>

#include "base/require.h"
#include "collective/place.h"
#include "collective/shard_config.h"
#include "collective/shard_status.h"
#include "transport/packet_numbers.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// What the group's table says of a link.
struct LinkAddress {
  LinkIndex index = 0;
  std::uint16_t own_rank = 0;
  std::uint16_t rank = 0;
  std::uint8_t lane = 0;
  std::uint32_t group_tag = 0;
  bool gets_data = false;         ///< data goes there, acknowledgements come from there
  bool brings_data = false;       ///< the other way round
  std::uint8_t box = 0;           ///< of the outbox: what goes there
  std::uint8_t ack_box = 0;       ///< and acknowledgements, which data's pacing must not hold back
  std::uint16_t port = 0;         ///< of Outbox::kAny: the lane's port that leads there
  std::uint64_t incarnation = 0;  ///< of its daemon
  LinkTokens tokens;
  wire::IpAddress ip;         ///< where packets from there come from
  wire::FrameTemplate frame;  ///< before packets that go there
};

class LinkEnd {
 public:
  explicit LinkEnd(const LinkAddress& address) noexcept : address_(address) {}

  [[nodiscard]] const LinkAddress& address() const noexcept { return address_; }
  [[nodiscard]] std::uint16_t rank() const noexcept { return address_.rank; }
  /// Its hello came: data from there is taken.
  [[nodiscard]] bool greeted() const noexcept { return greeted_; }
  void on_hello() noexcept { greeted_ = true; }
  /// It answered our hello: data may go there.
  [[nodiscard]] bool answered() const noexcept { return answered_; }
  void on_hello_ack() noexcept { answered_ = true; }
  /// All that was awaited from there came.
  [[nodiscard]] bool open() const noexcept {
    return (answered_ || !address_.gets_data) && (greeted_ || !address_.brings_data);
  }

  /// Buffers are laid out for frames of that length.
  void lead_to(const wire::FrameTemplate& frame) noexcept {
    require(frame.bytes() == address_.frame.bytes(), "a link's frames keep their length");
    address_.frame = frame;
  }

  /// Of packets that go there.
  [[nodiscard]] transport::PacketNumbers& numbers() noexcept { return numbers_; }
  /// What every packet that goes there begins with.
  [[nodiscard]] wire::CommonHeader header(wire::PacketType type,
                                          std::uint64_t packet_number) const noexcept {
    return {type,          address_.lane,     address_.group_tag,
            packet_number, address_.own_rank, address_.tokens.to};
  }
  /// Of a packet of which its sender remembers nothing.
  [[nodiscard]] wire::CommonHeader header(wire::PacketType type) noexcept {
    return header(type, numbers_.take());
  }
  [[nodiscard]] OutboxSide& side(Outbox& out) const noexcept { return out.boxes[address_.box]; }
  [[nodiscard]] OutboxSide& ack_side(Outbox& out) const noexcept {
    return out.boxes[address_.ack_box];
  }

  /// Encodes a packet without payload of its own class into a fresh mbuf and puts it in the box.
  /// @param encode  bytes that it wrote into the span it got; 0 if they do not fit.
  /// @return whether there was room for it.
  template <class Encode>
  bool send(rte_mempool* pool, OutboxSide& box, Encode&& encode) const noexcept {
    if (box.full()) return false;
    rte_mbuf* mbuf = rte_pktmbuf_alloc(pool);
    if (mbuf == nullptr) return false;
    mbuf->port = address_.port;
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
  LinkAddress address_;
  transport::PacketNumbers numbers_;
  bool greeted_ = false;
  bool answered_ = false;
};

}  // namespace gradwire::collective
