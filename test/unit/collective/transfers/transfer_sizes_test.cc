// SPDX-License-Identifier: BSD-3-Clause
// Receives of whatever is sent up to their size: shards of a simulated world.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "transfer_stand.h"

using namespace gradwire;
using namespace gradwire::sim;

namespace {

/// What was sent is at the beginning, and the rest is as it was.
bool has_got(const std::vector<std::byte>& to, const std::vector<std::byte>& from) {
  const auto behind = to.begin() + static_cast<std::ptrdiff_t>(from.size());
  return std::equal(from.begin(), from.end(), to.begin()) &&
         std::all_of(behind, to.end(), [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

TEST_CASE("a receive with more room than is sent gets what was sent, and tells how much") {
  for (const std::size_t count : {0, 1, 256, 257, 513, 256 * 64, 256 * 300 + 17}) {
    for (const std::size_t spare : {0, 1, 256, 256 * 200}) {
      for (const std::uint8_t lanes : {1, 3}) {
        for (const bool send_first : {true, false}) {
          INFO(count << " bytes, room for " << spare << " more, " << int{lanes}
                     << " lanes, send first: " << send_first);
          Stand stand(5, 1, lanes);
          auto from = bytes(count, 1);
          std::vector<std::byte> to(count + spare);
          if (send_first) stand.send(1, 1, {1, 3}, from);
          if (!send_first) stand.recv_up_to(2, 3, {1, 3}, to);
          stand.world().run_for(10'000'000);
          CHECK_FALSE(stand.has(1));
          CHECK_FALSE(stand.has(2));
          CHECK(stand.size_of(2) == -1);
          if (!send_first) stand.send(1, 1, {1, 3}, from);
          if (send_first) stand.recv_up_to(2, 3, {1, 3}, to);
          REQUIRE(stand.run_until_done(2));
          CHECK(stand.size_of(2) == static_cast<std::int64_t>(count));
          CHECK(has_got(to, from));
          CHECK(stand.failed().empty());
        }
      }
    }
  }
}

TEST_CASE("receives up to a size and others follow each other in one order, of every lane") {
  Stand stand(4, 1, 4);
  constexpr std::size_t kMost = 5000;
  for (std::uint64_t i = 0; i < 20; ++i) {
    INFO("transfer " << i);
    auto from = bytes((i * 977) % kMost, static_cast<int>(i));
    std::vector<std::byte> to(i % 3 == 0 ? from.size() : kMost);
    if (i % 2 == 0) stand.send(2 * i, 0, {0, 2}, from);
    if (i % 3 == 0) stand.recv(2 * i + 1, 2, {0, 2}, to);
    if (i % 3 != 0) stand.recv_up_to(2 * i + 1, 2, {0, 2}, to);
    if (i % 2 != 0) stand.send(2 * i, 0, {0, 2}, from);
    REQUIRE(stand.run_until_done(2 * i + 2));
    CHECK(stand.size_of(2 * i + 1) == (i % 3 == 0 ? -1 : static_cast<std::int64_t>(from.size())));
    CHECK(has_got(to, from));
  }
}

TEST_CASE("a process of the same rank may send less than there is room for") {
  for (const std::uint8_t lanes : {1, 2}) {
    for (const std::size_t count : {0, 1, 100'000}) {
      INFO(count << " bytes, " << int{lanes} << " lanes");
      Stand stand(3, 2, lanes);
      auto from = bytes(count, 3);
      std::vector<std::byte> to(300'000);
      stand.recv_up_to(2, 0, {1, 0}, to);
      stand.send(1, 0, {1, 0}, from);
      REQUIRE(stand.run_until_done(2));
      CHECK(stand.size_of(2) == static_cast<std::int64_t>(count));
      CHECK(has_got(to, from));
    }
  }
}

TEST_CASE("more than there is room for, or another tag, ends the group with both called by name") {
  const auto check = [](Stand& stand, const std::string& sent, const std::string& received) {
    REQUIRE(stand.world().run_until([&] { return stand.failed().size() == 4; }, kSecond));
    for (const AbortReason& reason : stand.failed()) {
      CHECK(reason.code == AbortCode::kMismatch);
      const std::string detail = reason.detail;
      CHECK(detail.find(sent) != std::string::npos);
      CHECK(detail.find(received) != std::string::npos);
    }
    CHECK(stand.size_of(2) == -1);
  };
  for (const bool send_first : {true, false}) {
    for (const std::uint16_t destination : {1, 4}) {  // of the same rank, and of another
      INFO("send first: " << send_first << ", to process " << destination);
      const auto rank = static_cast<std::uint16_t>(destination / 2);
      const wire::ProcessPair pair{0, destination};
      const auto both = [&](Stand& stand, std::vector<std::byte>& from, std::vector<std::byte>& to,
                            std::uint32_t tag) {
        if (send_first) stand.send(1, 0, pair, from);
        stand.recv_up_to(2, rank, pair, to, tag);
        if (!send_first) stand.send(1, 0, pair, from);
      };
      auto from = bytes(1000, 1);
      std::vector<std::byte> less(999);
      std::vector<std::byte> more(2000);
      {
        Stand stand(4, 2, 2);
        both(stand, from, less, 0);
        check(stand, "sent 1000 bytes with tag 0", "received up to 999 bytes with tag 0");
      }
      {
        Stand stand(4, 2, 2);
        both(stand, from, more, 7);
        check(stand, "sent 1000 bytes with tag 0", "received up to 2000 bytes with tag 7");
      }
    }
  }
}

TEST_CASE("a shard takes a receive up to a size on its first lane, and tells that it is one") {
  Stand stand(4, 1, 2);
  std::vector<std::byte> to(1000);
  collective::TransferSpec spec;
  spec.end = collective::TransferEnd::kDestination;
  spec.pair = {1, 0};
  spec.terms.bytes = to.size();
  spec.up_to = true;
  spec.to = to.data();
  const auto& shards = stand.world().rank(stand.group(), 0).shards;
  CHECK(shards[1]->post(spec, stand.world().now()) == collective::PostResult::kRefused);
  stand.recv_up_to(2, 0, {1, 0}, to);
  CHECK(shards[0]->status(stand.world().now()).transfer.up_to);
  auto from = bytes(100'000, 1);
  std::vector<std::byte> large(200'000);
  stand.recv_up_to(4, 0, {2, 0}, large);
  stand.send(1, 1, {1, 0}, from);  // more than there is room for
  REQUIRE(stand.world().run_until([&] { return stand.failed().size() == 4; }, kSecond));
  spec.end = collective::TransferEnd::kSource;
  CHECK(shards[0]->post(spec, stand.world().now()) == collective::PostResult::kRefused);
}
