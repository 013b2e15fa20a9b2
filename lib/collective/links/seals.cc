// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/seals.h"

#include "base/planted_bug.h"
#include "base/require.h"

namespace gradwire::collective {
namespace {

using security::Direction;
using security::KeyUse;
using security::OpenResult;

KeyUse use_of(wire::PacketType type) noexcept {
  switch (type) {
    case wire::PacketType::kHello:
    case wire::PacketType::kHelloAck:
    case wire::PacketType::kAbort:
      return KeyUse::kHello;
    default:
      return KeyUse::kData;
  }
}

wire::Drop drop_of(OpenResult opened) noexcept {
  switch (opened) {
    case OpenResult::kYes:
      return wire::Drop::kNone;
    case OpenResult::kGeneration:
      return wire::Drop::kGeneration;
    case OpenResult::kOld:
      return wire::Drop::kReplay;
    case OpenResult::kSeen:
      return wire::Drop::kDuplicate;
    case OpenResult::kForged:
      break;
  }
  return wire::Drop::kTag;
}

static_assert(wire::kHeaderBytes == security::kSealedHeaderBytes);
static_assert(wire::kSealTagBytes == security::kTagBytes);

}  // namespace

Seals::Seals(security::Mode mode, std::vector<std::unique_ptr<security::LinkSeal>> by_rank)
    : mode_(mode),
      by_rank_(std::move(by_rank)),
      asked_(by_rank_.size()),
      wishes_(2 * by_rank_.size() + 1) {}

void Seals::seal(std::uint16_t rank, rte_mbuf& frame, std::size_t frame_bytes,
                 const std::byte* payload) noexcept {
  require(rte_pktmbuf_tailroom(&frame) >= wire::kSealTagBytes,
          "a buffer of sealed packets has room for the tag");
  auto* const packet = rte_pktmbuf_mtod_offset(&frame, std::byte*, frame_bytes);
  const std::size_t payload_bytes = frame.data_len - frame_bytes - wire::kHeaderBytes;
  std::byte* const out = packet + wire::kHeaderBytes;
  const wire::Kind kind = wire::kind_of(packet);
  if (planted(PlantedBug::kPingInClear) && kind.type == wire::PacketType::kPing) return;
  packet[wire::kFlagsAt] |= static_cast<std::byte>(flag());
  const std::span<const std::byte> only(payload, payload_bytes);
  by_rank_[rank]->seal(use_of(kind.type), kind.packet_number,
                       security::Header(packet, wire::kHeaderBytes), {&only, 1}, out,
                       security::Tag(out + payload_bytes, wire::kSealTagBytes));
  // What the CRC covers has changed: flags, and the payload's CRC if that is encrypted.
  wire::renew_header_crc(packet);
  frame.data_len = static_cast<std::uint16_t>(frame.data_len + wire::kSealTagBytes);
  frame.pkt_len = frame.data_len;
  note(rank, Direction::kTo);
}

wire::Drop Seals::open(const wire::CommonHeader& header, std::span<std::byte> packet) noexcept {
  if (packet.size() < wire::kHeaderBytes + wire::kSealTagBytes) return wire::Drop::kShort;
  const std::span<std::byte> payload =
      packet.subspan(wire::kHeaderBytes, packet.size() - wire::kHeaderBytes - wire::kSealTagBytes);
  const OpenResult opened = by_rank_[header.from_rank]->open(
      use_of(header.type), header.packet_number, packet.first<wire::kHeaderBytes>(), payload,
      payload.data(), packet.last<wire::kSealTagBytes>());
  const bool taken = opened == OpenResult::kYes ||
                     (opened == OpenResult::kForged && planted(PlantedBug::kTagNotChecked));
  if (!taken) return drop_of(opened);
  note(header.from_rank, Direction::kFrom);
  return wire::Drop::kNone;
}

void Seals::note(std::uint16_t rank, Direction direction) noexcept {
  const security::LinkSeal& seal = *by_rank_[rank];
  if (!seal.wants(direction)) [[likely]]
    return;
  bool& asked = direction == Direction::kTo ? asked_[rank].to : asked_[rank].from;
  if (asked) return;
  asked = true;
  require(wishes_.push({rank, direction, seal.wanted(direction)}),
          "there is room for a wish of each link and direction");
}

bool Seals::pop_wish(KeyWish& out) noexcept {
  if (wishes_.empty()) return false;
  out = wishes_.front();
  wishes_.pop();
  return true;
}

security::PacketKey Seals::supply(const KeyWish& wish, security::PacketKey key) noexcept {
  bool& asked = wish.direction == Direction::kTo ? asked_[wish.rank].to : asked_[wish.rank].from;
  require(asked, "a key is supplied that was wished for");
  asked = false;
  security::PacketKey before = by_rank_[wish.rank]->supply(wish.direction, std::move(key));
  // Packets may have gone on to the next generation meanwhile.
  note(wish.rank, wish.direction);
  return before;
}

}  // namespace gradwire::collective
