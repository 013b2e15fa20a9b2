// SPDX-License-Identifier: BSD-3-Clause
#include "wire/alike.h"

#include <bit>
#include <cstring>

#include "base/require.h"
#include "wire/layout.h"
#include "wire/load.h"

namespace gradwire::wire {
namespace {

using layout::Header;

/// @param at  in bytes, from the header's start.
std::uint64_t word(const std::byte* header, std::size_t at) noexcept {
  return layout::load64(header + at);
}
/// As it lies in memory.
std::uint64_t raw(const std::byte* header, std::size_t at) noexcept {
  return layout::raw64(header + at);
}

constexpr std::size_t kNumber = offsetof(Header, packet_number);
constexpr std::size_t kFields = offsetof(Header, type_fields);
constexpr std::size_t kCountAndHop = kFields + offsetof(layout::DataFields, total_count);
constexpr std::size_t kChunkAndTag = kFields + offsetof(layout::DataFields, chunk);
constexpr std::size_t kKindsAndRank =
    kFields + offsetof(layout::DataFields, collective_and_datatype);
constexpr std::size_t kHeaderCrc = offsetof(Header, header_crc);
constexpr std::size_t kToken = offsetof(Header, token);
static_assert(kNumber == 8 && kFields == 16 && kCountAndHop == 24 && kChunkAndTag == 32 &&
              kKindsAndRank == 40 && kHeaderCrc == 48 && kToken == 56 && kHeaderBytes == 64);
static_assert(kCountAndHop + 6 == kFields + offsetof(layout::DataFields, hop));
static_assert(kChunkAndTag + 4 == kFields + offsetof(layout::DataFields, tag));
static_assert(kKindsAndRank + 6 == offsetof(Header, from_rank));
static_assert(kHeaderCrc + 4 == offsetof(Header, payload_crc));
constexpr std::uint64_t kAll = ~std::uint64_t{0};
constexpr std::uint64_t kHopBits = layout::swapped(std::uint64_t{0xffff});
constexpr std::uint64_t kChunkBits = layout::swapped(std::uint64_t{0xffffffff} << 32);

}  // namespace

void FrameMemory::remember(std::span<const std::byte> frame, const FrameView& view) noexcept {
  forget();
  if (view.kind != FrameKind::kUdp) return;
  const auto header_bytes = static_cast<std::size_t>(view.payload.data() - frame.data());
  if (header_bytes > header_.size()) return;  // IPv4 with options
  require(header_bytes % 4 == kChecksumBytes && header_bytes + view.payload.size() <= frame.size(),
          "a UDP header ends before its payload, which lies in its frame");
  frame_bytes_ = frame.size();
  compared_bytes_ = header_bytes - kChecksumBytes;
  payload_bytes_ = view.payload.size();
  has_checksum_ = view.source_ip.family == 6;
  std::memcpy(header_.data(), frame.data(), compared_bytes_);
}

void DataMemory::remember(std::span<const std::byte> packet) noexcept {
  require(packet.size() > kHeaderBytes &&
              packet[offsetof(Header, type)] == static_cast<std::byte>(PacketType::kData),
          "what is remembered is data that was decoded");
  std::memcpy(header_.data(), packet.data(), kHeaderBytes);
}

bool DataMemory::read(const std::byte* packet, std::uint32_t address_crc,
                      DataPlace& out) const noexcept {
  const auto differs = [&](std::size_t at, std::uint64_t first, std::uint64_t second) {
    return (load<Lanes>(packet + at) ^ load<Lanes>(header_.data() + at)) & Lanes{first, second};
  };
  const Lanes differ = differs(0, kAll, 0) | differs(kFields, kAll, ~kHopBits) |
                       differs(kChunkAndTag, ~kChunkBits, kAll) | differs(kHeaderCrc, 0, kAll);
  if (any_bit(differ)) return false;
  // As they lie in memory: they are swapped only if their value counts.
  const std::uint64_t number = raw(packet, kNumber);
  const std::uint64_t count_and_hop = raw(packet, kCountAndHop);
  const std::uint64_t chunk_and_tag = raw(packet, kChunkAndTag);
  const std::uint64_t crcs = word(packet, kHeaderCrc);
  layout::HeaderCrc crc;
  crc.add(raw(packet, 0));
  crc.add(number);
  crc.add(raw(packet, kFields));
  crc.add(count_and_hop);
  crc.add(chunk_and_tag);
  crc.add(raw(packet, kKindsAndRank));
  crc.add_payload_crc(static_cast<std::uint32_t>(crcs));
  crc.add(raw(packet, kToken));
  if ((crc.value() ^ address_crc) != crcs >> 32) return false;
  out.packet_number = layout::swapped(number);
  out.chunk = static_cast<std::uint32_t>(layout::swapped(chunk_and_tag) >> 32);
  out.payload_crc = static_cast<std::uint32_t>(crcs);
  out.hop = static_cast<std::uint16_t>(layout::swapped(count_and_hop));
  return out.packet_number != 0 && out.packet_number <= kLastPacketNumber && out.hop < kHopsMax;
}

void DataTemplate::make(const CommonHeader& common, const DataHeader& data) noexcept {
  std::array<std::byte, kHeaderBytes> header;
  DataHeader nowhere = data;
  nowhere.chunk = nowhere.hop = 0;
  encode_data(header, common, nowhere, 0);
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] = raw(header.data(), 8 * i);
}

void DataTemplate::write(std::byte* out, std::uint64_t packet_number, std::uint32_t chunk,
                         std::uint16_t hop, std::uint32_t payload_crc) const noexcept {
  layout::HeaderCrc crc;
  const auto put = [&](std::size_t at, std::uint64_t piece) {
    std::memcpy(out + at, &piece, sizeof piece);
    crc.add(piece);
  };
  const auto kept = [this](std::size_t at) { return words_[at / 8]; };
  put(0, kept(0));
  put(kNumber, layout::swapped(packet_number));
  put(kFields, kept(kFields));
  put(kCountAndHop, kept(kCountAndHop) | layout::swapped(std::uint64_t{hop}));
  put(kChunkAndTag, kept(kChunkAndTag) | layout::swapped(std::uint64_t{chunk} << 32));
  put(kKindsAndRank, kept(kKindsAndRank));
  crc.add_payload_crc(payload_crc);
  put(kToken, kept(kToken));
  layout::store64(out + kHeaderCrc, std::uint64_t{crc.value()} << 32 | payload_crc);
}

}  // namespace gradwire::wire
