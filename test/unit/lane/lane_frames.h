// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the tests of whole lanes share: ops on two ranks, checked to the bit, and frames made by
/// hand. Test code, one thread.
#pragma once

#include <rte_mbuf.h>
#include <rte_ring.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <optional>
#include <vector>

#include "two_ranks.h"

namespace gradwire::lane {

using gradwire::test::AllReduceCase;

/// Posts every case on both ranks, runs to the end and checks the bits of both.
inline void check_all(TwoRanks& ranks, std::vector<AllReduceCase>& cases) {
  for (auto& each : cases) {
    for (std::uint16_t r = 0; r < 2; ++r) ranks.post(r, each);
  }
  for (std::uint16_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      INFO("rank " << r << " op " << i + 1);
      std::optional<ipc::CompletionEntry> answer;
      REQUIRE(ranks.run_until([&] {
        answer = ranks.rank(r).client->completion();
        return answer.has_value();
      }));
      INFO(answer->text);
      REQUIRE(static_cast<ErrorCode>(answer->status) == ErrorCode::kOk);
      CHECK(answer->request_id == 1'001 + i);
      CHECK(answer->op_seq == 1 + i);
    }
  }
  for (auto& each : cases) {
    CHECK(each.wrong(0) == "");
    CHECK(each.wrong(1) == "");
  }
}

inline std::uint64_t drops(TwoRanks& ranks, std::uint16_t r, wire::Drop why) {
  return ranks.rank(r).datapath->lane(0).counters().drops[static_cast<std::size_t>(why)];
}

/// Puts a frame before rank 1's port, as if rank 0's host had sent it.
inline void inject(TwoRanks& ranks, const std::vector<std::byte>& frame, std::size_t segments = 1) {
  rte_mempool* pool = ranks.rank(0).datapath->pools(0).packet();
  rte_mbuf* head = nullptr;
  const std::size_t part = (frame.size() + segments - 1) / segments;
  for (std::size_t at = 0; at < frame.size(); at += part) {
    rte_mbuf* mbuf = rte_pktmbuf_alloc(pool);
    REQUIRE(mbuf != nullptr);
    const std::size_t bytes = std::min(part, frame.size() - at);
    std::memcpy(rte_pktmbuf_append(mbuf, static_cast<std::uint16_t>(bytes)), frame.data() + at,
                bytes);
    if (head == nullptr) {
      head = mbuf;
    } else {
      REQUIRE(rte_pktmbuf_chain(head, mbuf) == 0);
    }
  }
  REQUIRE(rte_ring_enqueue(ranks.ports().to_b(), head) == 0);
}

/// A UDP frame to rank 1 with a ping from rank 0 for the group of that tag in it.
inline std::vector<std::byte> ping_frame(TwoRanks& ranks, std::uint32_t tag,
                                         std::uint16_t udp_port = TwoRanks::kPort,
                                         const char* destination = "10.0.0.2",
                                         std::uint64_t token = 0, const char* source = "10.0.0.1") {
  wire::FrameAddresses addresses;
  addresses.source_mac = ranks.rank(0).datapath->ports()[0]->mac();
  addresses.destination_mac = ranks.rank(1).datapath->ports()[0]->mac();
  addresses.source_ip = *wire::parse_ip(source);
  addresses.destination_ip = *wire::parse_ip(destination);
  addresses.source_port = addresses.destination_port = udp_port;
  const auto header = wire::FrameTemplate::make(addresses);
  REQUIRE(header);
  std::vector<std::byte> frame(header->bytes() + wire::kHeaderBytes);
  header->write(frame.data(), wire::kHeaderBytes);
  wire::CommonHeader common;
  common.group_tag = tag;
  common.packet_number = 1;
  common.token = token;
  REQUIRE(wire::encode_ping({frame.data() + header->bytes(), wire::kHeaderBytes}, common) ==
          wire::kHeaderBytes);
  return frame;
}

}  // namespace gradwire::lane
