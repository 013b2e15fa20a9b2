// SPDX-License-Identifier: BSD-3-Clause
#include "sim/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "wire/frame.h"

namespace gradwire::sim {
namespace {

std::string describe_ack(const wire::AckHeader& ack) {
  std::string text;
  for (std::size_t i = 0; i < ack.range_count; ++i) {
    if (i == 4) return text + fmt::format(" and {} ranges", ack.range_count - i);
    text += fmt::format("{}{}-{}", i > 0 ? " " : "", ack.ranges[i].first, ack.ranges[i].last);
  }
  return ack.range_count == 0 ? "nothing" : text;
}

std::string describe_tile(const wire::TileHeader& tile) {
  return fmt::format("op {}, {} of {} of {} as {}, tag {}, root {}{}{}{}{}", tile.op_seq,
                     name_of(tile.redop), tile.total_count, name_of(tile.datatype),
                     name_of(tile.format), tile.tag, tile.root, tile.result ? ", result" : "",
                     tile.asks ? ", asks" : "", tile.since != 0 ? ", since " : "",
                     tile.since != 0 ? std::to_string(tile.since) : "");
}

std::string describe_tile_pull(const wire::TilePullHeader& pull) {
  std::string text =
      fmt::format("op {}, {}: first {}, grant {}, done {}, over {}, echo {}{}{}", pull.op_seq,
                  pull.results ? "results" : "parts", pull.first, pull.grant, pull.done, pull.over,
                  pull.echo, pull.asks ? ", asks" : "", pull.all ? ", all" : "");
  if (!pull.repair) return text;
  return text + fmt::format(", wanted {:x}", fmt::join(pull.wanted, " "));
}

std::string describe_on_lane(const wire::Packet& packet) {
  const std::uint64_t number = packet.common.packet_number;
  switch (packet.common.type) {
    case wire::PacketType::kHello:
    case wire::PacketType::kHelloAck:
      return fmt::format("{} {}: epoch {} rank {} to {}, source {}, heard {}",
                         packet.common.type == wire::PacketType::kHello ? "hello" : "hello-ack",
                         number, packet.hello.key.epoch, packet.hello.from_rank,
                         packet.hello.to_rank, packet.hello.source, packet.hello.heard_source);
    case wire::PacketType::kData:
      return fmt::format("data {}: op {} chunk {} hop {}, {} of {}", number, packet.data.op_seq,
                         packet.data.chunk, packet.data.hop, packet.data.count,
                         name_of(packet.data.datatype));
    case wire::PacketType::kPing:
      return fmt::format("ping {}", number);
    case wire::PacketType::kAck:
      return fmt::format("ack {}: {}, credit {}, posted {}, CE {}", number,
                         describe_ack(packet.ack), packet.ack.credit_chunks,
                         packet.ack.posted_op_seq, packet.ack.ecn_ce_count);
    case wire::PacketType::kAbort:
      return fmt::format("abort {}: {}", number, describe(packet.abort));
    case wire::PacketType::kBye:
      return fmt::format("bye {}: through up to op {}", number, packet.bye.completed_op_seq);
    case wire::PacketType::kByeAck:
      return fmt::format("bye-ack {}", number);
    case wire::PacketType::kProgressCheck:
      return fmt::format("progress check {}: rank {} asks for op {}, stalled for {} ms", number,
                         packet.check.origin_rank, packet.check.op_seq,
                         packet.check.stalled_ns / 1'000'000);
    case wire::PacketType::kContribution:
      return fmt::format(
          "contribution {}: op {} chunk {}{}, {} bytes; received {}", number, packet.data.op_seq,
          packet.data.chunk,
          packet.data.step != 0 ? fmt::format(" of step {}", packet.data.step - 1) : std::string(),
          packet.payload.size(), packet.receipt.received);
    case wire::PacketType::kReceipt:
    case wire::PacketType::kInquiry:
      return fmt::format("{} {}: entered {}, received {}, chunks {:x}, echo {}",
                         packet.common.type == wire::PacketType::kInquiry ? "inquiry" : "receipt",
                         number, packet.receipt.entered, packet.receipt.received,
                         packet.receipt.chunks, packet.receipt.echo);
    case wire::PacketType::kPiece:
    case wire::PacketType::kOffer: {
      const wire::OfferHeader& offer = packet.offer;
      return fmt::format("{} {}: process {} to {}, transfer {} of {} bytes, chunk {}{}{}",
                         packet.common.type == wire::PacketType::kPiece ? "piece" : "offer", number,
                         offer.pair.source, offer.pair.destination, offer.sequence,
                         offer.terms.bytes, offer.chunk, offer.asks ? ", asks" : "",
                         offer.done ? ", done" : "");
    }
    case wire::PacketType::kPull:
      return fmt::format(
          "pull {}: process {} to {}, transfer {}, first {}, wanted {:x}, echo {}{}{}", number,
          packet.pull.pair.source, packet.pull.pair.destination, packet.pull.sequence,
          packet.pull.first, packet.pull.wanted, packet.pull.echo, packet.pull.asks ? ", asks" : "",
          packet.pull.complete ? ", complete" : "");
    case wire::PacketType::kTilePiece:
      return fmt::format("tile piece {}: chunk {} of {}, {} bytes", number, packet.tile.chunk,
                         describe_tile(packet.tile), packet.payload.size());
    case wire::PacketType::kTileCall:
      return packet.tile.not_entered ? fmt::format("tile call {}: op {} has not entered, echo {}",
                                                   number, packet.tile.op_seq, packet.tile.echo)
                                     : fmt::format("tile call {}: {}, echo {}", number,
                                                   describe_tile(packet.tile), packet.tile.echo);
    case wire::PacketType::kTilePull:
      return fmt::format("tile pull {}: {}", number, describe_tile_pull(packet.tile_pull));
  }
  return "packet?";
}

}  // namespace

std::string describe_packet(const wire::Packet& packet) {
  if (packet.common.sealed != 0) {
    return fmt::format("sealed packet {} of type {} on lane {}", packet.common.packet_number,
                       static_cast<unsigned>(packet.common.type), packet.common.lane);
  }
  return fmt::format("{} on lane {}", describe_on_lane(packet), packet.common.lane);
}

wire::Drop decode(const wire::FrameView& frame, wire::Packet& out) noexcept {
  const wire::Drop why = wire::decode_header(
      frame.payload, out, wire::address_crc(frame.source_ip, frame.destination_ip));
  // The rest of a sealed one is for whoever has its key.
  if (why != wire::Drop::kNone || out.common.sealed != 0) return why;
  return wire::decode_body(frame.payload, out);
}

std::string describe_frame(std::span<const std::byte> frame) {
  wire::FrameView view;
  wire::Packet packet;
  if (wire::parse_frame(frame, view) != wire::Drop::kNone ||
      decode(view, packet) != wire::Drop::kNone) {
    return fmt::format("{} bytes that are no packet", frame.size());
  }
  return describe_packet(packet);
}

}  // namespace gradwire::sim
