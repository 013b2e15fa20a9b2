// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/layout.h"
#include "wire/packet.h"

namespace gradwire::wire {
namespace {

// The fields of a type, as a value that starts as zeros: reserved bytes then need no thought.
template <class Fields>
std::array<std::uint8_t, layout::kTypeFieldsBytes> bytes_of(const Fields& fields) noexcept {
  static_assert(sizeof(Fields) == layout::kTypeFieldsBytes);
  std::array<std::uint8_t, layout::kTypeFieldsBytes> bytes;
  std::memcpy(bytes.data(), &fields, sizeof(Fields));
  return bytes;
}

void write_header(std::byte* out, PacketType type, const CommonHeader& common,
                  const std::array<std::uint8_t, layout::kTypeFieldsBytes>& type_fields,
                  std::uint32_t payload_crc) noexcept {
  assert(common.lane < kMaxLanes);
  std::uint8_t flags = common.flags;
  const layout::Direction direction = layout::direction_of(type);
  if (!direction.both) {
    flags = static_cast<std::uint8_t>(flags & ~kFlagFromUpstream);
    if (direction.down) flags |= kFlagFromUpstream;
  }
  layout::Header header{};
  header.version = kProtocolVersion;
  header.type = static_cast<std::uint8_t>(type);
  header.flags = flags;
  header.lane = common.lane;
  header.connection_id.set(common.connection_id);
  header.packet_number.set(common.packet_number);
  header.type_fields = type_fields;
  header.payload_crc.set(payload_crc);
  header.header_crc.set(layout::header_crc(reinterpret_cast<const std::byte*>(&header)));
  std::memcpy(out, &header, sizeof(header));
}

constexpr std::array<std::uint8_t, layout::kTypeFieldsBytes> kNoFields{};

}  // namespace

void encode_data(std::span<std::byte, kHeaderBytes> out, const CommonHeader& common,
                 const DataHeader& data, std::uint32_t payload_crc) noexcept {
  layout::DataFields fields{};
  fields.op_seq.set(data.op_seq);
  fields.total_count.set(data.total_count);
  fields.chunk.set(data.chunk);
  fields.tag.set(data.tag);
  fields.count.set(data.count);
  fields.hop.set(data.hop);
  fields.datatype = static_cast<std::uint8_t>(data.datatype);
  fields.redop = static_cast<std::uint8_t>(data.redop);
  write_header(out.data(), PacketType::kData, common, bytes_of(fields), payload_crc);
}

std::size_t encode_ping(std::span<std::byte> out, CommonHeader common) noexcept {
  if (out.size() < kHeaderBytes) return 0;
  write_header(out.data(), PacketType::kPing, common, kNoFields, crc32c({}));
  return kHeaderBytes;
}

std::size_t encode_ack(std::span<std::byte> out, CommonHeader common,
                       const AckHeader& ack) noexcept {
  assert(ack.range_count <= kMaxAckRanges);
  const std::size_t ranges_bytes = ack.range_count * sizeof(layout::Range);
  if (out.size() < kHeaderBytes + ranges_bytes) return 0;
  std::byte* const payload = out.data() + kHeaderBytes;
  for (std::size_t i = 0; i < ack.range_count; ++i) {
    layout::Range range;
    range.first.set(ack.ranges[i].first);
    range.last.set(ack.ranges[i].last);
    std::memcpy(payload + i * sizeof(range), &range, sizeof(range));
  }
  layout::AckFields fields{};
  fields.credit_chunks.set(ack.credit_chunks);
  fields.posted_op_seq.set(ack.posted_op_seq);
  fields.delay_ns.set(ack.delay_ns);
  fields.ecn_ce_count.set(ack.ecn_ce_count);
  fields.range_count = ack.range_count;
  write_header(out.data(), PacketType::kAck, common, bytes_of(fields),
               crc32c({payload, ranges_bytes}));
  return kHeaderBytes + ranges_bytes;
}

std::size_t encode_hello(std::span<std::byte> out, PacketType type, CommonHeader common,
                         const HelloBody& body, std::size_t total_bytes) noexcept {
  assert(type == PacketType::kHello || type == PacketType::kHelloAck);
  total_bytes = std::max(total_bytes, kHeaderBytes + kHelloBodyBytes);
  if (out.size() < total_bytes) return 0;
  layout::Hello hello{};
  hello.group_id.set(body.key.group_id);
  hello.epoch.set(body.key.epoch);
  hello.features.set(body.features);
  hello.incarnation.set(body.incarnation);
  hello.table_digest.set(body.table_digest);
  hello.payload_bytes.set(body.payload_bytes);
  hello.connection_id.set(body.connection_id);
  hello.from_rank.set(body.from_rank);
  hello.to_rank.set(body.to_rank);
  hello.nranks.set(body.nranks);
  hello.lanes.set(body.lanes);
  hello.credit_chunks.set(body.credit_chunks);
  hello.posted_op_seq.set(body.posted_op_seq);
  std::byte* const payload = out.data() + kHeaderBytes;
  const std::size_t payload_bytes = total_bytes - kHeaderBytes;
  std::memcpy(payload, &hello, sizeof(hello));
  std::memset(payload + sizeof(hello), 0, payload_bytes - sizeof(hello));
  write_header(out.data(), type, common, kNoFields, crc32c({payload, payload_bytes}));
  return total_bytes;
}

std::size_t encode_abort(std::span<std::byte> out, CommonHeader common,
                         const AbortReason& reason) noexcept {
  if (out.size() < kHeaderBytes + sizeof(layout::Abort)) return 0;
  layout::Abort abort{};
  abort.code = static_cast<std::uint8_t>(reason.code);
  abort.culprit_rank.set(reason.culprit_rank);
  abort.reporter_rank.set(reason.reporter_rank);
  abort.op_seq.set(reason.op_seq);
  abort.duration_ns.set(reason.duration_ns);
  // What lies behind the NUL in memory stays here: the rest of the field is zeros.
  const std::size_t length = strnlen(reason.detail, AbortReason::kDetailBytes - 1);
  std::memcpy(abort.detail.data(), reason.detail, length);
  std::byte* const payload = out.data() + kHeaderBytes;
  std::memcpy(payload, &abort, sizeof(abort));
  write_header(out.data(), PacketType::kAbort, common, kNoFields, crc32c({payload, sizeof(abort)}));
  return kHeaderBytes + sizeof(abort);
}

std::size_t encode_bye(std::span<std::byte> out, PacketType type, CommonHeader common,
                       const ByeBody& body) noexcept {
  assert(type == PacketType::kBye || type == PacketType::kByeAck);
  if (out.size() < kHeaderBytes + sizeof(layout::Bye)) return 0;
  layout::Bye bye{};
  bye.completed_op_seq.set(body.completed_op_seq);
  std::byte* const payload = out.data() + kHeaderBytes;
  std::memcpy(payload, &bye, sizeof(bye));
  write_header(out.data(), type, common, kNoFields, crc32c({payload, sizeof(bye)}));
  return kHeaderBytes + sizeof(bye);
}

}  // namespace gradwire::wire
