// SPDX-License-Identifier: BSD-3-Clause
#include "wire/alike.h"

#include <bit>

#include "base/require.h"
#include "wire/layout.h"

namespace gradwire::wire {
namespace {

using layout::Header;

/// @param at  in bytes, from the header's start.
std::uint64_t word(const std::byte* header, std::size_t at) noexcept {
  return layout::load64(header + at);
}

constexpr std::size_t kFields = offsetof(Header, type_fields);
constexpr std::size_t kCountAndHop = kFields + offsetof(layout::DataFields, total_count);
constexpr std::size_t kChunkAndTag = kFields + offsetof(layout::DataFields, chunk);
constexpr std::size_t kKindsAndRank =
    kFields + offsetof(layout::DataFields, collective_and_datatype);
static_assert(kCountAndHop + 6 == kFields + offsetof(layout::DataFields, hop));
static_assert(kChunkAndTag + 4 == kFields + offsetof(layout::DataFields, tag));
static_assert(kKindsAndRank + 6 == offsetof(Header, from_rank));

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
  packet_bytes_ = packet.size();
}

bool DataMemory::read(std::span<const std::byte> packet, std::uint32_t address_crc,
                      DataPlace& out) const noexcept {
  if (packet.size() != packet_bytes_ || packet_bytes_ == 0) return false;
  const std::byte* const it = packet.data();
  const std::byte* const kept = header_.data();
  const auto differ = [&](std::size_t at) { return word(it, at) ^ word(kept, at); };
  const std::uint64_t count_and_hop = word(it, kCountAndHop);
  const std::uint64_t chunk_and_tag = word(it, kChunkAndTag);
  if ((differ(0) | differ(kFields) | (count_and_hop ^ word(kept, kCountAndHop)) >> 16 |
       (chunk_and_tag ^ word(kept, kChunkAndTag)) << 32 | differ(kKindsAndRank) |
       differ(offsetof(Header, token))) != 0) {
    return false;
  }
  const std::uint64_t crcs = word(it, offsetof(Header, header_crc));
  if ((layout::header_crc(it) ^ address_crc) != crcs >> 32) return false;
  out.packet_number = word(it, offsetof(Header, packet_number));
  out.chunk = static_cast<std::uint32_t>(chunk_and_tag >> 32);
  out.payload_crc = static_cast<std::uint32_t>(crcs);
  out.hop = static_cast<std::uint16_t>(count_and_hop);
  return out.packet_number != 0 && out.packet_number <= kLastPacketNumber && out.hop < kHopsMax;
}

void DataTemplate::make(const CommonHeader& common, const DataHeader& data) noexcept {
  std::array<std::byte, kHeaderBytes> header;
  DataHeader nowhere = data;
  nowhere.chunk = nowhere.hop = 0;
  encode_data(header, common, nowhere, 0);
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] = word(header.data(), 8 * i);
}

void DataTemplate::write(std::byte* out, const DataPlace& place) const noexcept {
  // Each store as wide as the loads of the CRC that follow it: see packet_encode.cc.
  const auto store = [out](std::size_t at, std::uint64_t value) {
    layout::store64(out + at, value);
  };
  const auto kept = [this](std::size_t at) { return words_[at / 8]; };
  store(0, kept(0));
  store(offsetof(Header, packet_number), place.packet_number);
  store(kFields, kept(kFields));
  store(kCountAndHop, kept(kCountAndHop) | place.hop);
  store(kChunkAndTag, kept(kChunkAndTag) | std::uint64_t{place.chunk} << 32);
  store(kKindsAndRank, kept(kKindsAndRank));
  store(offsetof(Header, token), kept(offsetof(Header, token)));
  layout::store32(out + offsetof(Header, payload_crc), place.payload_crc);
  layout::store32(out + offsetof(Header, header_crc), layout::header_crc(out));
}

}  // namespace gradwire::wire
