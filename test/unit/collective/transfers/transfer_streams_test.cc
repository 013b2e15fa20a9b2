// SPDX-License-Identifier: BSD-3-Clause
// Streams of a pair of processes: shards of a simulated world.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "collective/transfers/transfer_chunks.h"
#include "transfer_stand.h"

using namespace gradwire;
using namespace gradwire::sim;

TEST_CASE("transfers of one stream do not wait for those of another, on every lane") {
  for (const std::uint8_t lanes : {1, 3}) {
    Stand stand(4, 2, lanes, 256);
    constexpr std::uint16_t kLast = Stand::kStreams - 1;
    // Stream 0 waits for its send all the time.
    std::vector<std::byte> waiting(5000);
    stand.recv(1000, 2, {0, 4}, waiting);
    for (const std::size_t count : {0, 1, 256, 600, 256 * 70}) {
      for (std::uint16_t stream = 1; stream <= kLast; ++stream) {
        for (const std::uint16_t destination : {4, 1}) {  // of another rank, of the same one
          INFO(count << " bytes, stream " << stream << ", " << int{lanes} << " lanes");
          const auto rank = static_cast<std::uint16_t>(destination / 2);
          static std::uint64_t id = 2000;
          const std::uint64_t sent = id++;
          const std::uint64_t received = id++;
          auto from = bytes(count, stream);
          std::vector<std::byte> to(count + stream % 2 * 300);
          const wire::ProcessPair pair{0, destination, stream};
          if (stream % 2 == 0) stand.recv(received, rank, pair, to);
          if (stream % 2 == 1) stand.recv_up_to(received, rank, pair, to);
          stand.send(sent, 0, pair, from);
          REQUIRE(stand.world().run_until([&] { return stand.has(sent) && stand.has(received); },
                                          kSecond));
          to.resize(count);
          CHECK(to == from);
          if (stream % 2 == 1) CHECK(stand.size_of(received) == static_cast<std::int64_t>(count));
        }
      }
    }
    CHECK_FALSE(stand.has(1000));
    auto from = bytes(waiting.size(), 9);
    stand.send(1001, 0, {0, 4}, from);
    REQUIRE(stand.world().run_until([&] { return stand.has(1000); }, kSecond));
    CHECK(waiting == from);
    CHECK(stand.failed().empty());
  }
}

TEST_CASE("each stream counts by itself, and what differs names it") {
  Stand stand(4, 1, 2, 256);
  auto from = bytes(300, 1);
  auto other = bytes(200, 2);
  std::vector<std::byte> to(300);
  std::vector<std::byte> less(299);
  stand.send(1, 0, {0, 2, 5}, from);
  stand.send(3, 0, {0, 2, 6}, other);
  stand.recv(4, 2, {0, 2, 6}, less);
  REQUIRE(stand.world().run_until([&] { return stand.failed().size() == 4; }, kSecond));
  for (const AbortReason& reason : stand.failed()) {
    CHECK(reason.code == AbortCode::kMismatch);
    CHECK(std::string(reason.detail)
              .find("transfer 1 of process 0 to process 2, stream 6: sent "
                    "200 bytes") != std::string::npos);
  }
}

TEST_CASE("a shard takes no stream that its group does not have, and no other lane's") {
  Stand stand(4, 1, 2, 256);
  std::vector<std::byte> memory(64);
  const auto post = [&](std::size_t lane, std::uint16_t stream) {
    collective::TransferSpec spec;
    spec.pair = {0, 1, stream};
    spec.terms.bytes = memory.size();
    spec.from = memory.data();
    return stand.world().rank(stand.group(), 0).shards[lane]->post(spec, stand.world().now());
  };
  using collective::PostResult;
  CHECK(post(0, Stand::kStreams) == PostResult::kRefused);
  CHECK(post(1, Stand::kStreams) == PostResult::kRefused);
  CHECK(post(1, 3 + 1) == PostResult::kOk);  // 0 + 1 + 4 is odd
  CHECK(post(0, 3 + 1) == PostResult::kRefused);
  CHECK(post(0, 3) == PostResult::kOk);
  CHECK(post(1, 3) == PostResult::kRefused);
}

TEST_CASE("a lane has stream 0 and its own ones, below the group's number") {
  Stand stand(4, 1, 2, 256);
  const auto& shards = stand.world().rank(stand.group(), 0).shards;
  const auto has = [&](std::size_t lane, std::uint16_t stream) {
    return collective::TransferChunks(shards[lane]->config()).has({2, 0, stream});
  };
  CHECK(has(0, 0));
  CHECK(has(1, 0));
  CHECK(has(1, 1));
  CHECK_FALSE(has(0, 1));
  CHECK(has(0, 2));
  CHECK_FALSE(has(0, Stand::kStreams));
  CHECK_FALSE(has(1, Stand::kStreams + 1));
}
