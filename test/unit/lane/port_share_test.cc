// SPDX-License-Identifier: BSD-3-Clause
#include "lane/port_share.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

using namespace gradwire;
using namespace gradwire::lane;

namespace {

constexpr TimeNs kSecondNs = 1'000'000'000;

struct Group {
  std::uint32_t packet_bytes = 0;
  std::uint64_t waiting = 0;  ///< packets
  std::uint64_t sent_bytes = 0;
};

/// What a lane does, round by round: asks the groups in turn, beginning with whoever holds it.
void rounds(PortShare& share, std::vector<Group>& groups, TimeNs from, TimeNs to, TimeNs step,
            std::size_t room = 64) {
  for (TimeNs now = from; now < to; now += step) {
    const std::size_t first = share.turn();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::size_t slot = (first + i) % groups.size();
      Group& group = groups[slot];
      const std::size_t allowed =
          std::min(room, share.packets_allowed(slot, now, group.packet_bytes));
      const std::uint64_t sent = std::min<std::uint64_t>(allowed, group.waiting);
      group.waiting -= sent;
      group.sent_bytes += sent * group.packet_bytes;
      share.on_asked(slot, now, allowed, sent, sent * group.packet_bytes);
    }
  }
}

}  // namespace

TEST_CASE("a port without a rate lets every group send what it likes") {
  PortShare share(0, 2);
  CHECK_FALSE(share.paced());
  CHECK(share.packets_allowed(1, 0, 9'000) > 1'000'000);
  share.on_asked(1, 0, 100, 100, 900'000);
  CHECK(share.packets_allowed(0, 0, 9'000) > 1'000'000);
  CHECK(share.next() == kNever);
}

TEST_CASE("groups that always have something to send get as many bytes, whatever their packets") {
  for (const std::uint64_t rate_bps : {100'000'000ull, 1'000'000'000ull, 10'000'000'000ull}) {
    INFO("rate " << rate_bps);
    PortShare share(rate_bps, 4);
    std::vector<Group> groups = {
        {8'300, UINT64_MAX, 0}, {1'500, UINT64_MAX, 0}, {700, UINT64_MAX, 0}};
    rounds(share, groups, 0, kSecondNs, 1'500);
    std::uint64_t total = 0;
    for (const Group& group : groups) total += group.sent_bytes;
    const std::uint64_t ideal = rate_bps / 8;
    CHECK(total <= ideal + share.burst_bytes());
    CHECK(total + 2 * 9'728 + share.burst_bytes() >= ideal);
    for (const Group& group : groups) {
      // Two turns of each group: what one may be ahead of another.
      CHECK(group.sent_bytes * 3 + 6 * 9'728 >= total);
      CHECK(group.sent_bytes * 3 <= total + 6 * 9'728);
    }
  }
}

TEST_CASE("a group that has nothing to send leaves its part to the others, and saves nothing") {
  PortShare share(1'000'000'000, 2);
  std::vector<Group> groups = {{8'300, UINT64_MAX, 0}, {8'300, 0, 0}};
  rounds(share, groups, 0, kSecondNs, 2'000);
  CHECK(groups[0].sent_bytes + 9'728 >= 125'000'000);
  CHECK(groups[1].sent_bytes == 0);
  // Now it has: it gets half, not what it did not use before.
  groups[1].waiting = UINT64_MAX;
  groups[0].sent_bytes = 0;
  rounds(share, groups, kSecondNs, 2 * kSecondNs, 2'000);
  CHECK(groups[0].sent_bytes == Approx(62'500'000).margin(30'000));
  CHECK(groups[1].sent_bytes == Approx(62'500'000).margin(30'000));
}

TEST_CASE("a turn lasts until it is used up or there is nothing to send") {
  PortShare share(1'000'000'000, 2);
  CHECK(share.packets_allowed(0, 0, 8'000) == 1);
  share.on_asked(0, 0, 0, 0, 0);  // the backlog had no room
  CHECK(share.packets_allowed(1, 0, 8'000) == 0);
  CHECK(share.packets_allowed(0, 0, 8'000) == 1);
  share.on_asked(0, 0, 1, 0, 0);  // nothing to send
  CHECK(share.packets_allowed(1, 0, 8'000) == 1);
  share.on_asked(1, 0, 1, 1, 8'000);  // used up
  CHECK(share.packets_allowed(0, 0, 8'000) == 1);
}

TEST_CASE("acknowledgements go at once and leave a debt that data pays") {
  PortShare share(100'000'000, 1);
  const std::uint64_t burst = share.burst_bytes();
  share.on_sent(0, burst + 12'500);  // a millisecond's worth too much
  CHECK(share.packets_allowed(0, 0, 1'000) == 0);
  CHECK(share.next() > 1'000'000);
  CHECK(share.next() < 1'200'000);
  CHECK(share.packets_allowed(0, 1'000'000, 1'000) == 0);
  CHECK(share.packets_allowed(0, 1'200'000, 1'000) > 0);
}

TEST_CASE("a group that is gone does not keep its turn") {
  PortShare share(100'000'000, 2);
  std::vector<Group> groups = {{9'000, UINT64_MAX, 0}, {9'000, UINT64_MAX, 0}};
  rounds(share, groups, 0, 10'000'000, 1'000);
  const std::size_t holder = share.turn();
  share.forget(holder);
  CHECK(share.packets_allowed(1 - holder, 30'000'000, 9'000) > 0);
}
