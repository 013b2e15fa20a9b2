// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/link_end.h"

#include <catch2/catch.hpp>

#include "collective/neighbors/rails.h"

namespace gradwire::collective {
namespace {

constexpr std::uint8_t kSources = 4;

/// To a rank off the ring, by two paths.
LinkAddress two_paths() {
  LinkAddress address;
  address.ip = wire::parse_ip("10.0.0.2").value();
  wire::FrameAddresses frame;
  frame.source_ip = wire::parse_ip("10.0.0.1").value();
  frame.destination_ip = address.ip;
  address.frame = *wire::FrameTemplate::make(frame);
  address.sources = {kSources, true};
  address.others.push_back({wire::parse_ip("10.1.0.2").value(), address.frame, 1});
  return address;
}

std::uint32_t sends(LinkEnd& end) { return static_cast<std::uint32_t>(end.numbers().take()); }

}  // namespace

TEST_CASE("the source port of what arrived is taken again if a search has left it") {
  LinkEnd end(two_paths());
  const std::uint32_t first = sends(end);
  REQUIRE(end.take_source(0, 1));
  const std::uint32_t second = sends(end);
  REQUIRE(end.take_source(0, 2));
  const std::uint32_t third = sends(end);
  SECTION("the newest counts, and each once") {
    CHECK(end.arrived(second));
    CHECK(end.source_of(0) == 1);
    CHECK_FALSE(end.arrived(second));
    CHECK_FALSE(end.arrived(first));
    CHECK(end.source_of(0) == 1);
    CHECK(end.arrived(third));
    CHECK(end.source_of(0) == 2);
  }
  SECTION("the first port, too") {
    CHECK(end.arrived(first));
    CHECK(end.source_of(0) == 0);
  }
  SECTION("a port that comes round again has the numbers of its last turn") {
    REQUIRE(end.take_source(0, 0));
    const std::uint32_t fourth = sends(end);
    CHECK(end.arrived(second));
    CHECK(end.source_of(0) == 1);
    CHECK(end.arrived(fourth));
    CHECK(end.source_of(0) == 0);
  }
  SECTION("nothing that was never sent") {
    CHECK_FALSE(end.arrived(0));
    CHECK_FALSE(end.arrived(third + 1));
    CHECK_FALSE(end.arrived(third + 1'000'000));
    CHECK(end.source_of(0) == 2);
  }
  SECTION("nothing that went before full packets were found lost") {
    end.arrives_never({}, 1);
    REQUIRE(end.source_of(0) == 3);
    CHECK_FALSE(end.arrived(third));
    CHECK(end.source_of(0) == 3);
  }
  SECTION("nothing of another path") {
    end.take_path(1);
    sends(end);
    end.arrived(second);
    CHECK(end.source_of(1) == 0);
  }
  SECTION("nothing on a link whose ports somebody else chooses") {
    end.be_watched();
    CHECK_FALSE(end.arrived(first));
    CHECK(end.source_of(0) == 2);
  }
}

TEST_CASE("answers go back by the path of the newest packet that its sender chose") {
  LinkEnd end(two_paths());
  CHECK(end.path_from(wire::parse_ip("10.1.0.2").value()) == 1);
  CHECK(end.path_from(wire::parse_ip("10.2.0.2").value()) == kNoPath);
  end.came_by(1, 10);
  CHECK(end.back() == 1);
  CHECK(end.path_from(wire::parse_ip("10.0.0.2").value()) == 0);
  end.came_by(0, 9);  // It was overtaken.
  CHECK(end.back() == 1);
  end.came_by(0, 11);
  CHECK(end.back() == 0);
}

TEST_CASE("words about transfers and tiles lead back, and questions by the way they came") {
  using wire::PacketType;
  for (const PacketType type :
       {PacketType::kOffer, PacketType::kPull, PacketType::kTileCall, PacketType::kTilePull}) {
    for (const bool asks : {false, true}) {
      INFO("type " << static_cast<int>(type) << ", asks " << asks);
      wire::Packet packet;
      packet.common.type = type;
      packet.common.packet_number = 10;
      packet.offer.asks = type == PacketType::kOffer && asks;
      packet.pull.asks = type == PacketType::kPull && asks;
      packet.tile.asks = type == PacketType::kTileCall && asks;
      packet.tile_pull.asks = type == PacketType::kTilePull && asks;
      LinkEnd end(two_paths());
      Rails::note_path(packet, 1, end);
      CHECK(end.back() == 1);
      CHECK(end.answer_by() == (asks ? 1 : 0));
    }
  }
  // Pieces go the way that pulls come, so they do not say which way is good.
  for (const PacketType type : {PacketType::kPiece, PacketType::kTilePiece}) {
    wire::Packet packet;
    packet.common.type = type;
    packet.common.packet_number = 10;
    LinkEnd end(two_paths());
    Rails::note_path(packet, 1, end);
    CHECK(end.back() == 0);
  }
}

}  // namespace gradwire::collective
