// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Data packets of one link that came one after the other, and what they have in common. Plain
/// data; one lane owns it.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/links/packet_source.h"
#include "wire/alike.h"
#include "wire/packet.h"

namespace gradwire::collective {

struct RunPacket {
  rte_mbuf* mbuf = nullptr;
  std::byte* payload = nullptr;  ///< [DataRun::payload_bytes], nobody has checked its CRC
  wire::DataPlace place;
};

struct DataRun {
  PacketSource from;  ///< a link
  std::uint8_t lane = 0;
  bool ecn_ce = false;
  std::uint32_t payload_bytes = 0;
  wire::DataHeader header;  ///< but chunk and hop, which are each packet's own
  std::span<const RunPacket> packets;
};

/// @param packet  of data.
[[nodiscard]] inline DataRun run_of(const PacketSource& from, const wire::Packet& packet,
                                    bool ecn_ce) noexcept {
  DataRun run;
  run.from = from;
  run.lane = packet.common.lane;
  run.ecn_ce = ecn_ce;
  run.payload_bytes = static_cast<std::uint32_t>(packet.payload.size());
  run.header = packet.data;
  return run;
}
[[nodiscard]] inline RunPacket only_of(const wire::Packet& packet, rte_mbuf* mbuf) noexcept {
  return {mbuf,
          const_cast<std::byte*>(packet.payload.data()),
          {packet.common.packet_number, packet.data.chunk, packet.payload_crc, packet.data.hop}};
}

}  // namespace gradwire::collective
