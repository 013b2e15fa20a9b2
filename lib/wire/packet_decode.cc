// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "base/clean_text.h"
#include "wire/layout.h"
#include "wire/packet.h"
#include "wire/packet_read.h"

namespace gradwire::wire {
namespace {

using reading::all_zero;
using reading::check_payload_bytes;
using reading::read_kinds;
using reading::view;

bool number_fits(std::uint64_t packet_number) noexcept {
  return packet_number != 0 && packet_number <= kLastPacketNumber;
}

/// @param below  how much less than `posted` it is, and 1, so at most `posted`; 0: it is not said.
std::uint64_t read_word(std::uint64_t posted, std::uint16_t below) noexcept {
  return below == 0 ? 0 : posted - (below - 1u);
}

Drop read_data(const layout::Header& header, Packet& out) noexcept {
  const auto& fields = view<layout::DataFields>(header.type_fields.data());
  DataHeader& data = out.data;
  data.op_seq = fields.op_seq.get();
  data.total_count = fields.total_count.get();
  data.hop = fields.hop.get();
  data.chunk = fields.chunk.get();
  data.tag = fields.tag.get();
  data.redop = static_cast<RedOp>(fields.redop);
  if (data.op_seq == 0 || !is_valid(data.redop) || !read_kinds(fields, data)) {
    return Drop::kMalformed;
  }
  data.step = fields.step;
  const bool contributes = out.common.type == PacketType::kContribution;
  data.since = fields.since;
  if (data.step > (contributes ? kStepMax : 0) || data.since > (contributes ? data.op_seq : 0)) {
    return Drop::kMalformed;
  }
  if (contributes) [[unlikely]] {
    if (data.hop > data.op_seq) return Drop::kMalformed;
    out.receipt = {.entered = data.op_seq, .received = read_word(data.op_seq, data.hop)};
    data.hop = 0;
  }
  if (data.hop >= kHopsMax) return Drop::kMalformed;
  // Its length says how many elements it has: a UDP payload has less than 2^16 bytes.
  const std::size_t bytes = out.payload.size();
  if (bytes < element_bytes(data.datatype)) return Drop::kShort;
  if (bytes % element_bytes(data.datatype) != 0 || bytes > UINT16_MAX) return Drop::kMalformed;
  data.count = static_cast<std::uint16_t>(bytes / element_bytes(data.datatype));
  // What contributes is as wide as its op says, which may be wider than its datatype.
  return data.count <= data.total_count || contributes ? Drop::kNone : Drop::kMalformed;
}

bool read_call(const layout::Call& call, std::uint64_t posted, SaidCall& said) noexcept {
  said = {};
  said.op_seq = call.op_seq.get();
  if (said.op_seq == 0) {
    constexpr layout::Call kNothing{};
    return std::memcmp(&call, &kNothing, sizeof call) == 0;
  }
  said.digest = call.digest.get();
  said.count = call.count.get();
  said.tag = call.tag.get();
  said.redop = static_cast<RedOp>(call.redop);
  said.format = static_cast<WireFormat>(call.format);
  return said.op_seq <= posted && is_valid(said.redop) && read_kinds(call, said) &&
         fits(said.format, said.collective, said.redop, said.datatype) && call.reserved == 0;
}

Drop read_ping(const layout::Header& header, Packet& out) noexcept {
  const auto& fields = view<layout::PingFields>(header.type_fields.data());
  out.asked_op_seq = fields.asked_op_seq.get();
  if (!all_zero(fields.reserved)) return Drop::kMalformed;
  return check_payload_bytes(out.payload.size(), 0);
}

Drop read_ack(const layout::Header& header, Packet& out) noexcept {
  const auto& fields = view<layout::AckFields>(header.type_fields.data());
  AckHeader& ack = out.ack;
  if (fields.range_count > kMaxAckRanges || fields.reserved != 0) {
    return Drop::kMalformed;
  }
  ack.credit_chunks = fields.credit_chunks.get();
  ack.posted_op_seq = fields.posted_op_seq.get();
  if (std::max(fields.posted_onwards.get(), fields.posted_by_all.get()) > ack.posted_op_seq) {
    return Drop::kMalformed;
  }
  ack.posted_onwards = read_word(ack.posted_op_seq, fields.posted_onwards.get());
  ack.posted_by_all = read_word(ack.posted_op_seq, fields.posted_by_all.get());
  ack.delay_ns = fields.delay_ns.get();
  ack.ecn_ce_count = fields.ecn_ce_count.get();
  ack.range_count = fields.range_count;
  const Drop length = check_payload_bytes(
      out.payload.size(), sizeof(layout::Call) + ack.range_count * sizeof(layout::Range));
  if (length != Drop::kNone) return length;
  if (!read_call(view<layout::Call>(out.payload.data()), ack.posted_op_seq, ack.called)) {
    return Drop::kMalformed;
  }
  const std::byte* const ranges = out.payload.data() + sizeof(layout::Call);
  for (std::size_t i = 0; i < ack.range_count; ++i) {
    const auto& range = view<layout::Range>(ranges + i * sizeof(layout::Range));
    ack.ranges[i] = {.first = range.first.get(), .last = range.last.get()};
    if (ack.ranges[i].first > ack.ranges[i].last) return Drop::kMalformed;
    // A number at least must lie between two ranges, or they would be one.
    if (i > 0 && (ack.ranges[i - 1].first < 2 || ack.ranges[i].last > ack.ranges[i - 1].first - 2))
      return Drop::kMalformed;
  }
  return Drop::kNone;
}

Drop read_receipt(const layout::Header& header, Packet& out) noexcept {
  const auto& fields = view<layout::ReceiptFields>(header.type_fields.data());
  out.receipt = {.entered = fields.entered.get(),
                 .received = fields.received.get(),
                 .chunks = fields.chunks.get(),
                 .echo = fields.echo.get(),
                 .delay_us = fields.delay_us.get(),
                 .again = (header.flags & layout::kAgain) != 0};
  if (out.receipt.received > out.receipt.entered) return Drop::kMalformed;
  return check_payload_bytes(out.payload.size(), 0);
}

/// Both stand in the first 64 bits of pieces, offers and pulls, and are read at once.
struct StreamAndSequence {
  std::uint16_t stream;
  std::uint64_t sequence;
};
StreamAndSequence stream_and_sequence(const layout::Header& header) noexcept {
  const std::uint64_t both = view<layout::Big64>(header.type_fields.data()).get();
  return {static_cast<std::uint16_t>(both >> 48), both % kTransferSequences};
}

Drop read_offer(const layout::Header& header, Packet& out) noexcept {
  const auto& fields = view<layout::OfferFields>(header.type_fields.data());
  const bool piece = out.common.type == PacketType::kPiece;
  if (fields.call > static_cast<std::uint8_t>(kLastTransferCall)) return Drop::kMalformed;
  const auto [stream, sequence] = stream_and_sequence(header);
  out.offer = {
      .pair = {fields.source.get(), fields.destination.get(), stream},
      .sequence = sequence,
      .terms = {fields.bytes.get(), fields.tag.get(), static_cast<TransferCall>(fields.call)},
      .chunk = fields.chunk.get(),
      .asks = (fields.asks_and_done & layout::kAsks) != 0,
      .done = (fields.asks_and_done & layout::kDone) != 0,
      .again = (header.flags & layout::kAgain) != 0};
  const OfferHeader& offer = out.offer;
  if (offer.pair.source == offer.pair.destination || offer.terms.bytes > kTransferBytesMax) {
    return Drop::kMalformed;
  }
  if (!piece) {
    if (offer.chunk != 0 || fields.asks_and_done > (layout::kAsks | layout::kDone))
      return Drop::kMalformed;
    return check_payload_bytes(out.payload.size(), 0);
  }
  if (offer.sequence == 0 || fields.asks_and_done != 0) return Drop::kMalformed;
  if (out.payload.empty()) return Drop::kShort;
  return out.payload.size() <= offer.terms.bytes ? Drop::kNone : Drop::kMalformed;
}

Drop read_pull(const layout::Header& header, Packet& out) noexcept {
  const auto& fields = view<layout::PullFields>(header.type_fields.data());
  const auto [stream, sequence] = stream_and_sequence(header);
  out.pull = {.pair = {fields.source.get(), fields.destination.get(), stream},
              .sequence = sequence,
              .wanted = fields.wanted.get(),
              .first = fields.first.get(),
              .echo = fields.echo.get(),
              .asks = (fields.asks_and_complete & layout::kAsks) != 0,
              .complete = (fields.asks_and_complete & layout::kComplete) != 0,
              .again = (header.flags & layout::kAgain) != 0};
  if (out.pull.pair.source == out.pull.pair.destination || fields.reserved != 0 ||
      fields.asks_and_complete > (layout::kAsks | layout::kComplete)) {
    return Drop::kMalformed;
  }
  return check_payload_bytes(out.payload.size(), 0);
}

/// Whether the header's one flag beside those of seals is set, of a packet that may have it.
bool is_said_again(const layout::Header& header) noexcept {
  const auto type = static_cast<PacketType>(header.type);
  return (header.flags & ~kSealFlags) == layout::kAgain &&
         (type == PacketType::kInquiry || type == PacketType::kOffer || type == PacketType::kPull ||
          type == PacketType::kTileCall || type == PacketType::kTilePull);
}

Drop read_hello(Packet& out) noexcept {
  if (out.payload.size() < sizeof(layout::Hello)) return Drop::kShort;
  const auto& hello = view<layout::Hello>(out.payload.data());
  HelloBody& body = out.hello;
  body.key = {.group_id = hello.group_id.get(), .epoch = hello.epoch.get()};
  body.incarnation = hello.incarnation.get();
  body.table_digest = hello.table_digest.get();
  body.features = hello.features.get();
  body.payload_bytes = hello.payload_bytes.get();
  body.from_rank = hello.from_rank.get();
  body.to_rank = hello.to_rank.get();
  body.nranks = hello.nranks.get();
  body.lanes = hello.lanes.get();
  body.credit_chunks = hello.credit_chunks.get();
  body.posted_op_seq = hello.posted_op_seq.get();
  body.source = hello.source;
  body.heard_source = hello.heard_source;
  body.members = hello.members.get();
  body.folding_ranks = hello.folding_ranks.get();
  if (std::max(body.source, body.heard_source) > kSourcePortsMax) return Drop::kMalformed;
  if (!all_zero(hello.reserved0) || !all_zero(hello.reserved1)) return Drop::kMalformed;
  if (body.nranks < 2 || body.nranks > kMaxRanks) return Drop::kMalformed;
  if (body.from_rank >= body.nranks || body.to_rank >= body.nranks) return Drop::kMalformed;
  if (body.from_rank == body.to_rank) return Drop::kMalformed;
  if (body.lanes == 0 || body.lanes > kMaxLanes) return Drop::kMalformed;
  if (body.payload_bytes == 0) return Drop::kMalformed;
  return Drop::kNone;
}

Drop read_abort(Packet& out) noexcept {
  const Drop length = check_payload_bytes(out.payload.size(), sizeof(layout::Abort));
  if (length != Drop::kNone) return length;
  const auto& abort = view<layout::Abort>(out.payload.data());
  if (abort.code == 0 || abort.code > static_cast<std::uint8_t>(kLastAbortCode))
    return Drop::kMalformed;
  if (abort.reserved0 != 0 || !all_zero(abort.reserved1)) return Drop::kMalformed;
  if (abort.detail.back() != '\0') return Drop::kMalformed;
  AbortReason& reason = out.abort;
  reason.code = static_cast<AbortCode>(abort.code);
  reason.culprit_rank = abort.culprit_rank.get();
  reason.reporter_rank = abort.reporter_rank.get();
  reason.op_seq = abort.op_seq.get();
  reason.duration_ns = abort.duration_ns.get();
  if (reason.culprit_rank >= kMaxRanks || reason.reporter_rank >= kMaxRanks)
    return Drop::kMalformed;
  std::memcpy(reason.detail, abort.detail.data(), abort.detail.size());
  clean_text(reason.detail);
  return Drop::kNone;
}

Drop read_bye(Packet& out) noexcept {
  const Drop length = check_payload_bytes(out.payload.size(), sizeof(layout::Bye));
  if (length != Drop::kNone) return length;
  const auto& bye = view<layout::Bye>(out.payload.data());
  out.bye = {bye.completed_op_seq.get(), bye.digest.get(), bye.posted_by_all.get()};
  return out.bye.posted_by_all <= out.bye.completed_op_seq ? Drop::kNone : Drop::kMalformed;
}

Drop read_progress_check(Packet& out) noexcept {
  const Drop length = check_payload_bytes(out.payload.size(), sizeof(layout::ProgressCheck));
  if (length != Drop::kNone) return length;
  const auto& check = view<layout::ProgressCheck>(out.payload.data());
  out.check = {check.op_seq.get(), check.stalled_ns.get(), check.origin_rank.get()};
  const bool right =
      all_zero(check.reserved) && out.check.op_seq != 0 && out.check.origin_rank < kMaxRanks;
  return right ? Drop::kNone : Drop::kMalformed;
}

Drop read_body(const layout::Header& header, Packet& out) noexcept {
  switch (out.common.type) {
    case PacketType::kData:
    case PacketType::kContribution:
      return read_data(header, out);
    case PacketType::kAck:
      return read_ack(header, out);
    case PacketType::kReceipt:
    case PacketType::kInquiry:
      return read_receipt(header, out);
    case PacketType::kPiece:
    case PacketType::kOffer:
      return read_offer(header, out);
    case PacketType::kPull:
      return read_pull(header, out);
    case PacketType::kTilePiece:
    case PacketType::kTileCall:
      return reading::read_tile(header, out);
    case PacketType::kTilePull:
      return reading::read_tile_pull(header, out);
    case PacketType::kPing:
      return read_ping(header, out);
    default:
      break;
  }
  if (!all_zero(header.type_fields)) return Drop::kMalformed;
  switch (out.common.type) {
    case PacketType::kHello:
    case PacketType::kHelloAck:
      return read_hello(out);
    case PacketType::kAbort:
      return read_abort(out);
    case PacketType::kBye:
    case PacketType::kByeAck:
      return read_bye(out);
    case PacketType::kProgressCheck:
      return read_progress_check(out);
    default:
      return Drop::kType;
  }
}

}  // namespace

std::uint8_t version_of(std::span<const std::byte> udp_payload) noexcept {
  return udp_payload.empty() ? 0 : std::to_integer<std::uint8_t>(udp_payload[0]);
}

Drop decode_header(std::span<const std::byte> udp_payload, Packet& out,
                   std::uint32_t address_crc) noexcept {
  if (udp_payload.size() < kHeaderBytes) return Drop::kShort;
  const auto& header = view<layout::Header>(udp_payload.data());
  // The version comes first: another one may have its CRC elsewhere.
  if (header.version != kProtocolVersion) return Drop::kVersion;
  if ((layout::header_crc(udp_payload.data()) ^ address_crc) != header.header_crc.get()) {
    return Drop::kHeaderCrc;
  }
  if (header.type < static_cast<std::uint8_t>(PacketType::kHello) ||
      header.type > static_cast<std::uint8_t>(kLastPacketType))
    return Drop::kType;
  out.common.type = static_cast<PacketType>(header.type);
  out.common.lane = header.lane;
  out.common.group_tag = header.group_tag.get();
  out.common.packet_number = header.packet_number.get();
  out.common.from_rank = header.from_rank.get();
  out.common.token = header.token.get();
  out.common.sealed = header.flags & kSealFlags;
  return Drop::kNone;
}

Drop decode_body(std::span<const std::byte> udp_payload, Packet& out) noexcept {
  const auto& header = view<layout::Header>(udp_payload.data());
  out.payload_crc = header.payload_crc.get();
  out.payload = udp_payload.subspan(kHeaderBytes);
  if (((header.flags & ~kSealFlags) != 0 && !is_said_again(header)) || header.lane >= kMaxLanes ||
      !number_fits(out.common.packet_number))
    return Drop::kMalformed;
  // Nothing of a payload is read before its CRC, but for chunks: the lane checks that one where the
  // payload is in cache anyway, or not at all for a duplicate.
  if (!carries_chunk(out.common.type) && !payload_crc_ok(out)) return Drop::kPayloadCrc;
  return read_body(header, out);
}

Drop decode(std::span<const std::byte> udp_payload, Packet& out) noexcept {
  const Drop why = decode_header(udp_payload, out);
  if (why != Drop::kNone) return why;
  return out.common.sealed == 0 ? decode_body(udp_payload, out) : Drop::kMalformed;
}

bool payload_crc_ok(const Packet& packet, const std::byte* ahead) noexcept {
  return crc32c(packet.payload, ahead) == packet.payload_crc;
}

}  // namespace gradwire::wire
