// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>

#include "base/require.h"
#include "base/sip_hash.h"
#include "wire/layout.h"
#include "wire/packet.h"

namespace gradwire::wire {
namespace {

/// The 30 bytes of a type and the rank as four words, so that every store is as wide as the loads
/// of the CRC that follow it at once: narrower ones would each stall until they have left the store
/// buffer. The layout is that of layout.h, and the golden packets of the tests hold the two
/// together. The lowest 16 bits of the last word are the rank's: zero here.
using Words = std::array<std::uint64_t, (layout::kTypeFieldsBytes + sizeof(layout::Big16)) / 8>;

using layout::store32;
using layout::store64;

constexpr std::uint64_t word(std::uint64_t high32, std::uint64_t low32) noexcept {
  return high32 << 32 | low32;
}

void write_header(std::byte* out, PacketType type, const CommonHeader& common, const Words& words,
                  std::uint32_t payload_crc, bool again = false) noexcept {
  require(common.lane < kMaxLanes && words.back() << 48 == 0, "a header's fields fit their bits");
  const std::uint32_t flags = again ? layout::kAgain : 0;
  const std::uint32_t kind = std::uint32_t{kProtocolVersion} << 24 |
                             std::uint32_t{static_cast<std::uint8_t>(type)} << 16 | flags << 8 |
                             common.lane;
  store64(out, word(kind, common.group_tag));
  store64(out + offsetof(layout::Header, packet_number), common.packet_number);
  std::byte* const fields = out + offsetof(layout::Header, type_fields);
  for (std::size_t i = 0; i < words.size() - 1; ++i) store64(fields + 8 * i, words[i]);
  store64(fields + 8 * (words.size() - 1), words.back() | common.from_rank);
  store32(out + offsetof(layout::Header, payload_crc), payload_crc);
  store64(out + offsetof(layout::Header, token), common.token);
  store32(out + offsetof(layout::Header, header_crc), layout::header_crc(out));
}

constexpr Words kNoFields{};

std::uint64_t word_below(std::uint64_t posted, std::uint64_t word) noexcept {
  return word == 0 || word > posted || posted - word >= kWordSpan ? 0 : posted - word + 1;
}

}  // namespace

std::uint32_t group_tag(const GroupKey& key) noexcept {
  std::array<std::byte, 12> bytes;
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(key.group_id >> 8 * i);
  for (std::size_t i = 0; i < 4; ++i) bytes[8 + i] = static_cast<std::byte>(key.epoch >> 8 * i);
  return static_cast<std::uint32_t>(sip_hash({}, bytes) >> 32);
}

namespace {

[[gnu::always_inline]] inline void write_chunk_header(std::byte* out, PacketType type,
                                                      const CommonHeader& common,
                                                      const DataHeader& data, std::uint64_t hop,
                                                      std::uint32_t payload_crc) noexcept {
  require(data.total_count >> 48 == 0, "a count has 48 bits");
  std::uint64_t kinds = std::uint64_t{static_cast<std::uint8_t>(data.datatype)} << 56 |
                        std::uint64_t{static_cast<std::uint8_t>(data.redop)} << 48;
  if (data.collective != Collective::kAllReduce) [[unlikely]] {
    kinds |= std::uint64_t{static_cast<std::uint8_t>(data.collective)} << 60;
    kinds |= std::uint64_t{(data.root + 1u) & 0xffff} << 32;
  }
  if (type == PacketType::kContribution) {
    kinds |= std::uint64_t{data.step} << 24 | std::uint64_t{data.since} << 16;
  }
  const Words words = {data.op_seq, data.total_count << 16 | hop, word(data.chunk, data.tag),
                       kinds};
  write_header(out, type, common, words, payload_crc);
}

}  // namespace

void encode_data(std::span<std::byte, kHeaderBytes> out, const CommonHeader& common,
                 const DataHeader& data, std::uint32_t payload_crc) noexcept {
  write_chunk_header(out.data(), PacketType::kData, common, data, data.hop, payload_crc);
}

void encode_contribution(std::span<std::byte, kHeaderBytes> out, const CommonHeader& common,
                         const DataHeader& data, std::uint64_t received,
                         std::uint32_t payload_crc) noexcept {
  write_chunk_header(out.data(), PacketType::kContribution, common, data,
                     word_below(data.op_seq, std::min(received, data.op_seq)), payload_crc);
}

std::size_t encode_receipt(std::span<std::byte> out, PacketType type, CommonHeader common,
                           const Receipt& receipt) noexcept {
  require(type == PacketType::kReceipt || type == PacketType::kInquiry, "only these say receipts");
  if (out.size() < kHeaderBytes) return 0;
  const Words words = {receipt.entered, receipt.received, receipt.chunks,
                       std::uint64_t{receipt.delay_us} << 48 | std::uint64_t{receipt.echo} << 16};
  write_header(out.data(), type, common, words, crc32c({}), receipt.again);
  return kHeaderBytes;
}

namespace {

std::uint64_t stream_and_sequence(const ProcessPair& pair, std::uint64_t sequence) noexcept {
  return std::uint64_t{pair.stream} << 48 | sequence;  // which is below kTransferSequences
}

void write_offer(std::byte* out, PacketType type, const CommonHeader& common,
                 const OfferHeader& offer, std::uint32_t payload_crc) noexcept {
  const std::uint8_t bits = static_cast<std::uint8_t>((offer.asks ? layout::kAsks : 0) |
                                                      (offer.done ? layout::kDone : 0));
  const std::uint64_t pair = word(
      std::uint32_t{offer.pair.source} << 16 | offer.pair.destination,
      std::uint32_t{static_cast<std::uint8_t>(offer.terms.call)} << 24 | std::uint32_t{bits} << 16);
  const Words words = {stream_and_sequence(offer.pair, offer.sequence), offer.terms.bytes,
                       word(offer.chunk, offer.terms.tag), pair};
  write_header(out, type, common, words, payload_crc, offer.again);
}

}  // namespace

void encode_piece(std::span<std::byte, kHeaderBytes> out, const CommonHeader& common,
                  const OfferHeader& piece, std::uint32_t payload_crc) noexcept {
  write_offer(out.data(), PacketType::kPiece, common, piece, payload_crc);
}

std::size_t encode_offer(std::span<std::byte> out, CommonHeader common,
                         const OfferHeader& offer) noexcept {
  if (out.size() < kHeaderBytes) return 0;
  write_offer(out.data(), PacketType::kOffer, common, offer, crc32c({}));
  return kHeaderBytes;
}

std::size_t encode_pull(std::span<std::byte> out, CommonHeader common,
                        const PullHeader& pull) noexcept {
  if (out.size() < kHeaderBytes) return 0;
  const std::uint32_t bits =
      (pull.asks ? layout::kAsks : 0u) | (pull.complete ? layout::kComplete : 0u);
  const Words words = {
      stream_and_sequence(pull.pair, pull.sequence), pull.wanted, word(pull.first, pull.echo),
      word(std::uint32_t{pull.pair.source} << 16 | pull.pair.destination, bits << 24)};
  write_header(out.data(), PacketType::kPull, common, words, crc32c({}), pull.again);
  return kHeaderBytes;
}

namespace {

/// @param number  the chunk of a piece, the echo of a call
void write_tile(std::byte* out, PacketType type, const CommonHeader& common, const TileHeader& tile,
                std::uint32_t number, std::uint64_t bits_and_since, std::uint32_t payload_crc,
                bool again) noexcept {
  require(tile.total_count >> 48 == 0, "a count has 48 bits");
  std::uint64_t kinds = std::uint64_t{static_cast<std::uint8_t>(tile.datatype)} << 56 |
                        std::uint64_t{static_cast<std::uint8_t>(tile.redop)} << 48 |
                        std::uint64_t{static_cast<std::uint8_t>(tile.format)} << 28 |
                        bits_and_since << 16;
  if (tile.collective != Collective::kAllReduce) {
    kinds |= std::uint64_t{static_cast<std::uint8_t>(tile.collective)} << 60;
    kinds |= std::uint64_t{(tile.root + 1u) & 0xffff} << 32;
  }
  const Words words = {tile.op_seq, tile.total_count << 16, word(number, tile.tag), kinds};
  write_header(out, type, common, words, payload_crc, again);
}

}  // namespace

void encode_tile_piece(std::span<std::byte, kHeaderBytes> out, const CommonHeader& common,
                       const TileHeader& piece, std::uint32_t payload_crc) noexcept {
  const std::uint64_t bits = piece.result ? layout::kResult : 0u;
  write_tile(out.data(), PacketType::kTilePiece, common, piece, piece.chunk, bits << 8, payload_crc,
             false);
}

std::size_t encode_tile_call(std::span<std::byte> out, CommonHeader common,
                             const TileHeader& call) noexcept {
  if (out.size() < kHeaderBytes) return 0;
  TileHeader said = call;
  if (call.not_entered) {
    said = {};
    said.op_seq = call.op_seq;
  }
  const std::uint64_t bits =
      (said.asks ? layout::kAsks : 0u) | (call.not_entered ? layout::kNotEntered : 0u);
  write_tile(out.data(), PacketType::kTileCall, common, said, call.echo, bits << 8 | said.since,
             crc32c({}), call.again);
  return kHeaderBytes;
}

std::size_t encode_tile_pull(std::span<std::byte> out, CommonHeader common,
                             const TilePullHeader& pull) noexcept {
  layout::TileWanted wanted;
  const std::size_t payload_bytes = pull.repair ? sizeof(wanted) : 0;
  if (out.size() < kHeaderBytes + payload_bytes) return 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i].set(pull.wanted[i]);
  std::byte* const payload = out.data() + kHeaderBytes;
  if (pull.repair) std::memcpy(payload, &wanted, sizeof(wanted));
  const std::uint64_t bits = (pull.asks ? layout::kAsks : 0u) |
                             (pull.results ? layout::kResults : 0u) |
                             (pull.repair ? layout::kRepair : 0u) | (pull.all ? layout::kAll : 0u);
  const Words words = {pull.op_seq, word(pull.first, pull.grant), word(pull.done, pull.echo),
                       std::uint64_t{pull.over} << 48 | bits << 40};
  write_header(out.data(), PacketType::kTilePull, common, words, crc32c({payload, payload_bytes}),
               pull.again);
  return kHeaderBytes + payload_bytes;
}

std::size_t encode_ping(std::span<std::byte> out, CommonHeader common,
                        std::uint64_t asked_op_seq) noexcept {
  if (out.size() < kHeaderBytes) return 0;
  const Words words = {asked_op_seq, 0, 0, 0};
  write_header(out.data(), PacketType::kPing, common, words, crc32c({}));
  return kHeaderBytes;
}

namespace {

std::uint8_t kinds_on_wire(const SaidCall& said) noexcept {
  const unsigned collective =
      said.collective == Collective::kAllReduce ? 0 : static_cast<unsigned>(said.collective);
  return static_cast<std::uint8_t>(collective << 4 | static_cast<unsigned>(said.datatype));
}

void write_call(const SaidCall& said, layout::Call& call) noexcept {
  require(said.count >> 48 == 0, "a count has 48 bits");
  call.op_seq.set(said.op_seq);
  call.digest.set(said.digest);
  call.count.high.set(static_cast<std::uint32_t>(said.count >> 16));
  call.count.low.set(static_cast<std::uint16_t>(said.count));
  call.root.set(static_cast<std::uint16_t>(said.root + 1u));
  call.tag.set(said.tag);
  call.collective_and_datatype = kinds_on_wire(said);
  call.redop = static_cast<std::uint8_t>(said.redop);
  call.format = static_cast<std::uint8_t>(said.format);
}

}  // namespace

std::uint64_t digest_of(std::uint64_t before, const SaidCall& said) noexcept {
  layout::Call call{};
  write_call(said, call);
  // Its bytes as they travel, but for number and digest, which are the key.
  const auto bytes = std::as_bytes(std::span(&call, 1)).subspan(offsetof(layout::Call, count));
  return sip_hash({.k0 = before, .k1 = said.op_seq}, bytes);
}

std::size_t encode_ack(std::span<std::byte> out, CommonHeader common,
                       const AckHeader& ack) noexcept {
  require(ack.range_count <= kMaxAckRanges, "an acknowledgement has so many ranges at most");
  const std::size_t payload_bytes = sizeof(layout::Call) + ack.range_count * sizeof(layout::Range);
  if (out.size() < kHeaderBytes + payload_bytes) return 0;
  std::byte* const payload = out.data() + kHeaderBytes;
  layout::Call call{};
  if (ack.called.op_seq != 0) write_call(ack.called, call);
  std::memcpy(payload, &call, sizeof(call));
  for (std::size_t i = 0; i < ack.range_count; ++i) {
    layout::Range range;
    range.first.set(ack.ranges[i].first);
    range.last.set(ack.ranges[i].last);
    std::memcpy(payload + sizeof(call) + i * sizeof(range), &range, sizeof(range));
  }
  const Words words = {ack.credit_chunks, ack.posted_op_seq, word(ack.delay_ns, ack.ecn_ce_count),
                       std::uint64_t{ack.range_count} << 56 |
                           word_below(ack.posted_op_seq, ack.posted_onwards) << 32 |
                           word_below(ack.posted_op_seq, ack.posted_by_all) << 16};
  write_header(out.data(), PacketType::kAck, common, words, crc32c({payload, payload_bytes}));
  return kHeaderBytes + payload_bytes;
}

std::size_t encode_hello(std::span<std::byte> out, PacketType type, CommonHeader common,
                         const HelloBody& body, std::size_t total_bytes) noexcept {
  require(type == PacketType::kHello || type == PacketType::kHelloAck, "only these are hellos");
  total_bytes = std::max(total_bytes, kHeaderBytes + kHelloBodyBytes);
  if (out.size() < total_bytes) return 0;
  layout::Hello hello{};
  hello.group_id.set(body.key.group_id);
  hello.epoch.set(body.key.epoch);
  hello.features.set(body.features);
  hello.incarnation.set(body.incarnation);
  hello.table_digest.set(body.table_digest);
  hello.payload_bytes.set(body.payload_bytes);
  hello.from_rank.set(body.from_rank);
  hello.to_rank.set(body.to_rank);
  hello.nranks.set(body.nranks);
  hello.lanes.set(body.lanes);
  hello.credit_chunks.set(body.credit_chunks);
  hello.posted_op_seq.set(body.posted_op_seq);
  hello.source = body.source;
  hello.heard_source = body.heard_source;
  hello.members.set(body.members);
  hello.folding_ranks.set(body.folding_ranks);
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
  require(type == PacketType::kBye || type == PacketType::kByeAck, "only these are byes");
  if (out.size() < kHeaderBytes + sizeof(layout::Bye)) return 0;
  layout::Bye bye{};
  bye.completed_op_seq.set(body.completed_op_seq);
  bye.digest.set(body.digest);
  bye.posted_by_all.set(body.posted_by_all);
  std::byte* const payload = out.data() + kHeaderBytes;
  std::memcpy(payload, &bye, sizeof(bye));
  write_header(out.data(), type, common, kNoFields, crc32c({payload, sizeof(bye)}));
  return kHeaderBytes + sizeof(bye);
}

std::size_t encode_progress_check(std::span<std::byte> out, CommonHeader common,
                                  const ProgressCheckBody& body) noexcept {
  if (out.size() < kHeaderBytes + sizeof(layout::ProgressCheck)) return 0;
  layout::ProgressCheck check{};
  check.op_seq.set(body.op_seq);
  check.stalled_ns.set(body.stalled_ns);
  check.origin_rank.set(body.origin_rank);
  std::byte* const payload = out.data() + kHeaderBytes;
  std::memcpy(payload, &check, sizeof(check));
  write_header(out.data(), PacketType::kProgressCheck, common, kNoFields,
               crc32c({payload, sizeof(check)}));
  return kHeaderBytes + sizeof(check);
}

}  // namespace gradwire::wire
