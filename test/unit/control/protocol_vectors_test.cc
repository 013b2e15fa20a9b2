// SPDX-License-Identifier: BSD-3-Clause
// The vectors of doc/protocol, made from that page by a program that shares nothing with the
// code: checksums of two entries, their table's digest, a token, and a whole hello.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "control/formation/table.h"
#include "wire/packet.h"

namespace gradwire::control {
namespace {

ipc::RankInfo entry(std::uint64_t incarnation, std::uint32_t secret, std::uint8_t host) {
  ipc::RankInfo info;
  info.incarnation = incarnation;
  info.max_payload_bytes = 8896;
  info.features = 0x0200'8020;
  info.base_udp_port = 18515;
  info.lanes = 2;
  info.address_count = 1;
  info.secret = secret;
  info.addresses[0].ip[0] = 10;
  info.addresses[0].ip[3] = host;
  info.addresses[0].family = 4;
  info.addresses[0].prefix_bits = 24;
  info.direct_kib = 64;
  info.fold_sources = 1024;
  info.transfers = 1;
  info.two_step_kib = 16;
  info.gathered_kib = 256;
  info.gathered_ranks = 64;
  info.folding = 1;
  info.source_ports = 2;
  info.checksum = checksum_of(info);
  return info;
}

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("checksum, digest, token and hello are those of the protocol's page") {
  const std::vector<ipc::RankInfo> table = {entry(0x1111'1111'1111'1111, 0x0a0b0c0d, 1),
                                            entry(0x2222'2222'2222'2222, 0x1a1b1c1d, 2)};
  CHECK(table[0].checksum == 0xc0250e31);
  CHECK(table[1].checksum == 0x2a9a5740);
  const GroupKey key = {.group_id = 0x0123456789abcdef, .epoch = 7};
  const Agreement agreement = {.payload_bytes = 8896, .lanes = 2, .features = 0x0200'8020};
  const std::uint64_t digest = table_digest(key, 1, agreement, table);
  CHECK(digest == 0x231b274c799b3984);
  const std::uint64_t token = link_token(key, 1, 0, 1, table);
  CHECK(token == 0x7c52f626d38d345c);

  wire::HelloBody body;
  body.key = key;
  body.incarnation = table[0].incarnation;
  body.table_digest = digest;
  body.payload_bytes = agreement.payload_bytes;
  body.from_rank = 0;
  body.to_rank = 1;
  body.nranks = 2;
  body.lanes = agreement.lanes;
  body.credit_chunks = 128;
  body.source = 1;
  body.members = 1;
  const wire::CommonHeader common = {.lane = 1,
                                     .group_tag = wire::group_tag(key),
                                     .packet_number = 1,
                                     .from_rank = 0,
                                     .token = token};
  std::vector<std::byte> hello(16'384);
  hello.resize(wire::encode_hello(hello, wire::PacketType::kHello, common, body,
                                  wire::kHeaderBytes + agreement.payload_bytes));
  REQUIRE(hello.size() == 8960);
  CHECK(hex(std::span(hello).first(136)) ==
        "0201000191daaf1d000000000000000100000000000000000000000000000000"
        "00000000000000000000000000000000f5e1e9135f61820f7c52f626d38d345c"
        "0123456789abcdef00000007000000001111111111111111231b274c799b3984"
        "000022c000000000000000010002000200000000000000800000000000000000"
        "0100000100000000");
  CHECK(std::all_of(hello.begin() + 136, hello.end(),
                    [](std::byte byte) { return byte == std::byte{}; }));
}

TEST_CASE("an entry of which one bit was changed has another checksum, whichever it is") {
  ipc::RankInfo info = entry(0x1111'1111'1111'1111, 0x0a0b0c0d, 1);
  auto* const bytes = reinterpret_cast<unsigned char*>(&info);
  for (std::size_t bit = 0; bit < 8 * sizeof info; ++bit) {
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
    // A bit of the checksum itself changes only that.
    if (info.checksum == checksum_of(info)) FAIL("bit " << bit);
    bytes[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
  }
  CHECK(info.checksum == checksum_of(info));
}

}  // namespace gradwire::control
