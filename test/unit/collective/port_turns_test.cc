// SPDX-License-Identifier: BSD-3-Clause
// Turns at a port that is full (lib/collective/links/port_turns.h), by users that only count.
#include "collective/links/port_turns.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "collective/shard_status.h"

using namespace gradwire;
using collective::LateUser;
using collective::Outbox;
using collective::PortTurns;

namespace {

constexpr std::uint32_t kBurst = 16;    ///< packets of a user in a run at most
constexpr std::uint32_t kBlocked = 8;   ///< runs without room until a user starves
constexpr std::uint32_t kPlenty = 1e9;  ///< packets that are never used up

struct Port {
  std::uint32_t room = 0;
  std::string order;  ///< the letter of whoever sent, for each packet

  std::uint32_t take(std::uint32_t most, char letter) {
    const std::uint32_t taken = std::min(most, room);
    room -= taken;
    order.append(taken, letter);
    return taken;
  }
};

/// Waits and starves as Transfers does.
struct Sender final : LateUser {
  Sender(Port& at, char name) : port(&at), letter(name) {}
  bool run(TimeNs, Outbox&) noexcept override {
    const std::uint32_t sent = port->take(std::min(kBurst, wants), letter);
    wants -= sent;
    total += sent;
    blocked = sent == 0 && wants > 0 ? blocked + 1 : 0;
    return sent > 0;
  }
  bool waits_for_room() const noexcept override { return blocked > 0; }
  bool starves() const noexcept override { return blocked >= kBlocked; }

  Port* port;
  char letter;
  std::uint32_t wants = 0;
  std::uint32_t blocked = 0;
  std::uint64_t total = 0;
};

/// Rounds as OffRing and Shard have them.
struct Rounds {
  void add(Sender& user) {
    turns.add(user);
    late.push_back(&user);
  }
  void round(std::uint32_t room) {
    port.room = room;
    const auto run = [&](LateUser& user) { return user.run(0, box); };
    turns.run_passed(run);
    if (direct.run(0, box)) turns.passed();
    turns.run_starving(run);
    ring.run(0, box);
    turns.run_all(run);
  }

  Outbox box;
  Port port;
  Sender direct{port, 'd'};
  Sender ring{port, 'r'};
  Sender transfers{port, 'x'};
  Sender tiles{port, 't'};
  std::vector<Sender*> late;
  PortTurns turns;
};

/// The rule for one late user, as it was before there could be two.
struct RoundsOfOne {
  void round(std::uint32_t room) {
    port.room = room;
    if (direct_went && transfers.waits_for_room()) transfers.run(0, box);
    if (!transfers.waits_for_room()) direct_went = false;
    direct_went |= direct.run(0, box);
    if (transfers.starves()) transfers.run(0, box);
    ring.run(0, box);
    transfers.run(0, box);
  }

  Outbox box;
  Port port;
  Sender direct{port, 'd'};
  Sender ring{port, 'r'};
  Sender transfers{port, 'x'};
  bool direct_went = false;
};

}  // namespace

TEST_CASE("with room for one packet direct ops, transfers and tiles go in turn", "[turns]") {
  Rounds rounds;
  rounds.add(rounds.transfers);
  rounds.add(rounds.tiles);
  rounds.direct.wants = rounds.transfers.wants = rounds.tiles.wants = kPlenty;
  // Some rounds have no room, and are nobody's turn.
  for (int i = 0; i < 12; ++i) rounds.round(i % 4 == 3 ? 0 : 1);
  CHECK(rounds.port.order == "dxtdxtdxt");
}

TEST_CASE("without direct ops late users go in turn", "[turns]") {
  Rounds rounds;
  rounds.add(rounds.transfers);
  rounds.add(rounds.tiles);
  rounds.transfers.wants = rounds.tiles.wants = kPlenty;
  for (int i = 0; i < 6; ++i) rounds.round(1);
  CHECK(rounds.port.order == "xtxtxt");
}

TEST_CASE("whatever room a port has, nobody is passed over for long", "[turns]") {
  for (std::uint32_t room = 1; room <= 3 * kBurst; ++room) {
    for (const bool has_direct : {false, true}) {
      for (const bool has_ring : {false, true}) {
        CAPTURE(room, has_direct, has_ring);
        Rounds rounds;
        rounds.add(rounds.transfers);
        rounds.add(rounds.tiles);
        rounds.transfers.wants = rounds.tiles.wants = kPlenty;
        if (has_direct) rounds.direct.wants = kPlenty;
        if (has_ring) rounds.ring.wants = kPlenty;
        std::vector<Sender*> senders = rounds.late;
        if (has_direct) senders.push_back(&rounds.direct);
        std::vector<std::uint64_t> before(senders.size());
        std::vector<int> waited(senders.size());
        int longest = 0;
        for (int i = 0; i < 400; ++i) {
          rounds.round(room);
          for (std::size_t s = 0; s < senders.size(); ++s) {
            waited[s] = senders[s]->total > before[s] ? 0 : waited[s] + 1;
            before[s] = senders[s]->total;
            longest = std::max(longest, waited[s]);
          }
        }
        // Behind the ring alone a user waits until it starves, and the other may go before it.
        CHECK(longest <= (has_ring ? static_cast<int>(kBlocked) + 1 : 2));
      }
    }
  }
}

TEST_CASE("a user whose own port is full keeps no other waiting", "[turns]") {
  Rounds rounds;
  Port full;
  rounds.transfers.port = &full;
  rounds.add(rounds.transfers);
  rounds.add(rounds.tiles);
  rounds.direct.wants = rounds.transfers.wants = rounds.tiles.wants = kPlenty;
  for (int i = 0; i < 8; ++i) rounds.round(1);
  CHECK(rounds.port.order == "dtdtdtdt");
  CHECK(rounds.transfers.starves());
  full.room = 1;
  rounds.round(1);
  CHECK(full.order == "x");
}

TEST_CASE("who has waited goes first as soon as another has sent", "[turns]") {
  Rounds rounds;
  rounds.add(rounds.transfers);
  rounds.add(rounds.tiles);
  rounds.transfers.wants = kPlenty;
  for (int i = 0; i < 5; ++i) rounds.round(kBurst);
  rounds.tiles.wants = 3;
  for (int i = 0; i < 2; ++i) rounds.round(kBurst);
  CHECK(rounds.tiles.total == 3);
}

TEST_CASE("with one late user turns are as they were with one alone", "[turns]") {
  std::mt19937 random(20);
  for (int run = 0; run < 200; ++run) {
    Rounds rounds;
    rounds.add(rounds.transfers);
    RoundsOfOne old;
    const std::uint32_t most = 1 + random() % 40;
    for (int i = 0; i < 300; ++i) {
      const auto more = [&](Sender& one, Sender& other) {
        const std::uint32_t packets = random() % 3 == 0 ? random() % 20 : 0;
        one.wants += packets;
        other.wants += packets;
      };
      more(rounds.direct, old.direct);
      more(rounds.ring, old.ring);
      more(rounds.transfers, old.transfers);
      const std::uint32_t room = random() % most;
      rounds.round(room);
      old.round(room);
      REQUIRE(rounds.port.order == old.port.order);
      REQUIRE(rounds.transfers.blocked == old.transfers.blocked);
    }
  }
}
