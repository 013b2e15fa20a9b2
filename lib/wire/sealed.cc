// SPDX-License-Identifier: BSD-3-Clause
#include "wire/sealed.h"

#include "wire/layout.h"

namespace gradwire::wire {

Kind kind_of(const std::byte* packet) noexcept {
  return {static_cast<PacketType>(packet[offsetof(layout::Header, type)]),
          layout::load64(packet + offsetof(layout::Header, packet_number))};
}

std::uint32_t payload_crc_of(const std::byte* packet) noexcept {
  return static_cast<std::uint32_t>(layout::load64(packet + offsetof(layout::Header, header_crc)));
}

std::uint32_t header_crc_error(std::span<const std::byte> packet) noexcept {
  const std::uint64_t crcs = layout::load64(packet.data() + offsetof(layout::Header, header_crc));
  return layout::header_crc(packet.data()) ^ static_cast<std::uint32_t>(crcs >> 32);
}

void renew_header_crc(std::byte* packet, std::uint32_t address_crc) noexcept {
  layout::store32(packet + offsetof(layout::Header, header_crc),
                  layout::header_crc(packet) ^ address_crc);
}

}  // namespace gradwire::wire
