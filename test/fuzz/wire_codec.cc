// SPDX-License-Identifier: BSD-3-Clause
// Decodes any bytes. Nothing past their end may be read, and what decodes must be encoded to the
// same bytes again, so no two packets mean the same.
//
// First byte of the input: 0 a UDP payload as it is; 1 with its CRCs made right; 2 a frame; 3 a
// frame with its checksums made right. Then the bytes.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/repair.h"

namespace {

using namespace gradwire;
using namespace gradwire::fuzz;
using wire::Drop;
using wire::Packet;
using wire::PacketType;

std::vector<std::byte> encode(const Packet& packet, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  std::size_t written = 0;
  switch (packet.common.type) {
    case PacketType::kHello:
    case PacketType::kHelloAck:
      written = encode_hello(out, packet.common.type, packet.common, packet.hello, bytes);
      break;
    case PacketType::kData:
      encode_data(std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes),
                  packet.common, packet.data, packet.payload_crc);
      std::memcpy(out.data() + wire::kHeaderBytes, packet.payload.data(), packet.payload.size());
      written = wire::kHeaderBytes + packet.payload.size();
      break;
    case PacketType::kPing:
      written = encode_ping(out, packet.common, packet.asked_op_seq);
      break;
    case PacketType::kAck:
      written = encode_ack(out, packet.common, packet.ack);
      break;
    case PacketType::kAbort:
      written = encode_abort(out, packet.common, packet.abort);
      break;
    case PacketType::kBye:
    case PacketType::kByeAck:
      written = encode_bye(out, packet.common.type, packet.common, packet.bye);
      break;
    case PacketType::kProgressCheck:
      written = encode_progress_check(out, packet.common, packet.check);
      break;
    case PacketType::kContribution:
      encode_contribution(std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes),
                          packet.common, packet.data, packet.receipt.received, packet.payload_crc);
      std::memcpy(out.data() + wire::kHeaderBytes, packet.payload.data(), packet.payload.size());
      written = wire::kHeaderBytes + packet.payload.size();
      break;
    case PacketType::kReceipt:
    case PacketType::kInquiry:
      written = encode_receipt(out, packet.common.type, packet.common, packet.receipt);
      break;
    case PacketType::kPiece:
      encode_piece(std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes),
                   packet.common, packet.offer, packet.payload_crc);
      std::memcpy(out.data() + wire::kHeaderBytes, packet.payload.data(), packet.payload.size());
      written = wire::kHeaderBytes + packet.payload.size();
      break;
    case PacketType::kOffer:
      written = encode_offer(out, packet.common, packet.offer);
      break;
    case PacketType::kPull:
      written = encode_pull(out, packet.common, packet.pull);
      break;
    case PacketType::kTilePiece:
      encode_tile_piece(std::span<std::byte, wire::kHeaderBytes>(out.data(), wire::kHeaderBytes),
                        packet.common, packet.tile, packet.payload_crc);
      std::memcpy(out.data() + wire::kHeaderBytes, packet.payload.data(), packet.payload.size());
      written = wire::kHeaderBytes + packet.payload.size();
      break;
    case PacketType::kTileCall:
      written = encode_tile_call(out, packet.common, packet.tile);
      break;
    case PacketType::kTilePull:
      written = encode_tile_pull(out, packet.common, packet.tile_pull);
      break;
  }
  FUZZ_CHECK(written == bytes);
  return out;
}

/// Of a hello, what is padding; of an abort, a text that decode() had to clean.
bool says_more_than_its_fields(const Packet& packet) {
  const auto& payload = packet.payload;
  if (packet.common.type == PacketType::kHello || packet.common.type == PacketType::kHelloAck) {
    const auto padding = payload.subspan(wire::kHelloBodyBytes);
    return std::any_of(padding.begin(), padding.end(),
                       [](std::byte b) { return b != std::byte{}; });
  }
  if (packet.common.type == PacketType::kAbort) {
    const auto text = payload.subspan(offsetof(wire::layout::Abort, detail));
    return std::memcmp(text.data(), packet.abort.detail, text.size()) != 0;
  }
  return false;
}

void check_packet(std::span<const std::byte> bytes) {
  auto first = std::make_unique<Packet>();
  if (wire::decode(bytes, *first) != Drop::kNone) return;
  FUZZ_CHECK(first->payload.data() == bytes.data() + wire::kHeaderBytes);
  FUZZ_CHECK(first->payload.size() == bytes.size() - wire::kHeaderBytes);
  static_cast<void>(wire::payload_crc_ok(*first));
  for (std::size_t i = 0; i < first->ack.range_count && first->common.type == PacketType::kAck; ++i)
    FUZZ_CHECK(first->ack.ranges[i].first <= first->ack.ranges[i].last);
  const std::vector<std::byte> again = encode(*first, bytes.size());
  if (!says_more_than_its_fields(*first)) {
    FUZZ_CHECK(std::memcmp(again.data(), bytes.data(), bytes.size()) == 0);
    return;
  }
  // Once cleaned, it stays as it is.
  auto second = std::make_unique<Packet>();
  FUZZ_CHECK(wire::decode(again, *second) == Drop::kNone);
  FUZZ_CHECK(encode(*second, again.size()) == again);
}

/// What a lane does to a frame of these bytes before it sends it.
void check_completion(std::span<const std::byte> frame) {
  std::vector<std::byte> copy(frame.begin(), frame.end());
  wire::FrameView view;
  FUZZ_CHECK(wire::parse_frame(copy, view) == Drop::kNone);
  const auto packet = std::span(copy).subspan(view.ip_offset);
  if (!wire::complete_ipv6(packet, wire::UdpSum::kCpu)) return;
  FUZZ_CHECK(wire::parse_frame(copy, view) == Drop::kNone && view.kind == wire::FrameKind::kUdp);
  FUZZ_CHECK(wire::complete_ipv6(packet, wire::UdpSum::kDevice));
}

void check_frame(std::span<const std::byte> frame) {
  wire::FrameView view;
  if (wire::parse_frame(frame, view) != Drop::kNone) return;
  if (!view.payload.empty()) {
    FUZZ_CHECK(view.payload.data() >= frame.data());
    FUZZ_CHECK(view.payload.data() + view.payload.size() <= frame.data() + frame.size());
  }
  if (view.kind == wire::FrameKind::kArp) FUZZ_CHECK(view.payload.size() >= 28);
  if (view.kind == wire::FrameKind::kDiscovery) FUZZ_CHECK(view.payload.size() >= 24);
  if (view.kind == wire::FrameKind::kIcmpEcho) FUZZ_CHECK(view.payload.size() >= 8);
  if (view.kind == wire::FrameKind::kIcmpTooBig) FUZZ_CHECK(view.payload.size() >= 8);
  if (view.kind != wire::FrameKind::kUdp) return;
  if (view.source_ip.family == 6) check_completion(frame);
  check_packet(view.payload);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) { return 0; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const unsigned kind = data[0] & 3;
  if (kind == 0) check_packet(bytes);
  if (kind == 2) check_frame(bytes);
  // A copy of exactly its size, so that a sanitizer sees a read past its end.
  const auto copy = std::make_unique<std::byte[]>(bytes.size());
  const std::span<std::byte> repaired(copy.get(), bytes.size());
  std::copy(bytes.begin(), bytes.end(), repaired.begin());
  if (kind == 1) {
    repair_packet(repaired);
    check_packet(repaired);
  } else if (kind == 3) {
    repair_frame(repaired);
    check_frame(repaired);
  }
  return 0;
}
