// SPDX-License-Identifier: BSD-3-Clause
// The rules of links/peer_links.h, one case each, and that nobody waits for ever.
#include "collective/links/peer_links.h"

#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>
#include <vector>

using namespace gradwire;
using namespace gradwire::collective;

namespace {

constexpr TimeNs kPoll = 1'000'000;
constexpr TimeNs kSilent = 1'000 * kPoll;
constexpr TimeNs kForms = 5'000 * kPoll;
constexpr TimeNs kPingNs = 25 * kPoll;

ShardConfig asker_config(std::uint16_t nranks) {
  ShardConfig config;
  config.nranks = nranks;
  config.timeouts.silence_ns = kSilent;
  config.timeouts.formation_ns = kForms;
  config.timeouts.ping_interval_ns = kPingNs;
  config.sender.granularity_ns = kPoll;
  config.sender.max_ack_delay_ns = kPoll;
  config.sender.initial_rtt_ns = 10 * kPoll;
  return config;
}

/// Awaits the ranks that a case names, of which it ends the wait when they are silent.
struct Awaiting final : PeerUser {
  bool waits_for(std::uint16_t rank) const noexcept override { return awaited.contains(rank); }
  void ask(std::uint16_t rank, TimeNs) noexcept override {
    links->asked(rank);
    on_ask(rank);
  }
  void on_silent(std::uint16_t rank, TimeNs) noexcept override {
    links->found_silent(rank);
    ++silences[rank];
  }

  PeerLinks* links = nullptr;
  std::set<std::uint16_t> awaited;
  std::map<std::uint16_t, int> silences;
  std::function<void(std::uint16_t)> on_ask = [](std::uint16_t) {};
};

/// Rank 0 of a group, whose lane polls each millisecond and asks whoever is due.
struct Asker {
  explicit Asker(std::uint16_t nranks) : config(asker_config(nranks)) {
    for (Awaiting* one : {&user, &other, &third}) {
      one->links = &links;
      links.add(*one);
    }
  }

  /// @param on_ask  (rank): a question goes there; it is counted as sent.
  template <class OnAsk>
  void run(TimeNs ns, OnAsk&& on_ask) {
    for (const TimeNs end = now + ns; now < end;) {
      now += kPoll;
      links.count(kPoll);
      user.on_ask = on_ask;
      (void)links.look(now);
      if (const auto found = links.take_silent()) {
        silent.push_back(*found);
        user.awaited.erase(found->rank);
      }
    }
  }
  void await(std::uint16_t rank) {
    links.begin_wait(rank, user, now);
    user.awaited.insert(rank);
  }

  ShardConfig config;
  ShardCounters counters;
  Links ring;
  PeerEnds ends{config, ring, counters};
  PeerLinks links{config, ends};
  Awaiting user;
  Awaiting other;
  Awaiting third;
  std::vector<PeerSilence> silent;
  TimeNs now = 0;
};

}  // namespace

TEST_CASE("a rank's silence counts in polled time, from when it was heard or its wait began") {
  Asker asker(3);
  asker.links.count(7 * kPoll);
  asker.links.hear(1);
  CHECK(asker.links.quiet(1) == 0);
  asker.links.count(5 * kPoll);
  CHECK(asker.links.quiet(1) == 5 * kPoll);
  CHECK(asker.links.quiet(2) == 12 * kPoll);
  asker.await(1);
  CHECK(asker.links.quiet(1) == 0);
  CHECK(asker.links.ever_heard(1));
  asker.await(2);
  CHECK(asker.links.quiet(2) == 0);
  CHECK_FALSE(asker.links.ever_heard(2));
  // The wait of another user is no new one, and a wait that was over is.
  asker.links.count(3 * kPoll);
  asker.links.begin_wait(1, asker.other, asker.now);
  asker.other.awaited.insert(1);
  CHECK(asker.links.quiet(1) == 3 * kPoll);
  asker.user.awaited.erase(1);
  asker.await(1);
  CHECK(asker.links.quiet(1) == 3 * kPoll);
  asker.user.awaited.clear();
  asker.other.awaited.clear();
  asker.await(1);
  CHECK(asker.links.quiet(1) == 0);
}

TEST_CASE("whatever comes from a rank ends its silence and answers all questions") {
  Asker asker(2);
  for (int i = 0; i < 100; ++i) asker.links.asked(1);
  asker.links.count(kForms + kSilent);
  CHECK(asker.links.is_silent(1));
  asker.links.hear(1);
  CHECK(asker.links.unanswered(1) == 0);
  CHECK_FALSE(asker.links.is_silent(1));
  asker.links.count(kSilent);
  CHECK_FALSE(asker.links.is_silent(1));
}

TEST_CASE("a rank is asked seldom at first, and often in the last half of its limit") {
  Asker asker(2);
  asker.links.hear(1);
  asker.await(1);
  std::vector<TimeNs> asked;
  const auto note = [&](std::uint16_t) { asked.push_back(asker.now); };
  asker.run(kSilent / PeerLinks::kAsksFirst - kPoll, note);
  CHECK(asked.empty());
  asker.run(kSilent / 2 - asker.now - kPoll, note);
  const std::size_t first = asked.size();
  CHECK(first >= 2);
  CHECK(first <= 3);
  asker.run(kSilent - asker.now + kPoll, note);
  CHECK(asked.size() >= 26);
  REQUIRE(asker.silent.size() == 1);
  CHECK(asker.silent[0].rank == 1);
  CHECK(asker.silent[0].for_ns >= kSilent);
  CHECK_FALSE(asker.silent[0].never_heard);
  CHECK(asker.silent[0].in_vain == InVain::kNothing);
}

TEST_CASE("a rank is silent if nothing came for its limit and enough questions have no answer") {
  Asker asker(2);
  asker.links.hear(1);
  asker.links.count(kSilent - 1);
  for (std::uint32_t i = 0; i < kUnansweredMin; ++i) asker.links.asked(1);
  CHECK_FALSE(asker.links.is_silent(1));
  asker.links.count(1);
  CHECK(asker.links.is_silent(1));
  SECTION("not enough questions") {
    asker.links.hear(1);
    asker.links.count(kSilent);
    for (std::uint32_t i = 1; i < kUnansweredMin; ++i) asker.links.asked(1);
    CHECK_FALSE(asker.links.is_silent(1));
    asker.links.asked(1);
    CHECK(asker.links.is_silent(1));
  }
  SECTION("one that was never heard has what is left of the formation limit, too") {
    Asker other(2);
    other.links.count(kForms - 10);
    other.await(1);
    for (std::uint32_t i = 0; i < kUnansweredMin; ++i) other.links.asked(1);
    CHECK(other.links.limit(1) == kSilent + 10);
    other.links.count(kSilent + 9);
    CHECK_FALSE(other.links.is_silent(1));
    other.links.count(1);
    CHECK(other.links.is_silent(1));
    other.links.hear(1);
    CHECK(other.links.limit(1) == kSilent);
  }
}

TEST_CASE("all ranks together are asked so often in a ping interval, and each gets its turn") {
  constexpr std::uint16_t kRanks = 1000;
  Asker asker(kRanks);
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) {
    asker.links.hear(rank);
    asker.await(rank);
  }
  std::map<std::uint16_t, int> asked;
  std::map<TimeNs, std::uint32_t> in_interval;
  TimeNs all_at = 0;
  asker.run(kSilent / PeerLinks::kAsksFirst + 20 * kPingNs, [&](std::uint16_t rank) {
    ++asked[rank];
    ++in_interval[asker.now / kPingNs];
    if (asked.size() == kRanks - 1 && all_at == 0) all_at = asker.now;
  });
  // An interval begins with its first question, so two of them may meet in one of these.
  for (const auto& [at, count] : in_interval) CHECK(count <= 2 * PeerLinks::kAsksMax);
  CHECK(asked.size() == kRanks - 1);
  const TimeNs intervals = (kRanks - 1) / PeerLinks::kAsksMax + 1;
  CHECK(all_at <= kSilent / PeerLinks::kAsksFirst + (intervals + 1) * kPingNs);
}

TEST_CASE("a look is at a bounded number of ranks, and the next round goes on") {
  constexpr std::uint16_t kRanks = 1000;
  Asker asker(kRanks);
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) {
    asker.links.hear(rank);
    asker.await(rank);
  }
  asker.user.awaited.clear();
  asker.now += kSilent;
  constexpr std::uint32_t kLooksInRound = Sweep<std::uint16_t>::kLooksInRound;
  std::uint32_t rounds = 0;
  for (; asker.links.deadline() <= asker.now; ++rounds) {
    REQUIRE(asker.links.look(asker.now));
    std::uint32_t listed = 0;
    for (std::uint16_t rank = 1; rank < kRanks; ++rank) listed += asker.links.is_listed(rank);
    const std::uint32_t looked_at = (rounds + 1) * kLooksInRound;
    CHECK(listed == (looked_at < kRanks - 1 ? kRanks - 1 - looked_at : 0));
  }
  CHECK(rounds == (kRanks - 1 + kLooksInRound - 1) / kLooksInRound);
  CHECK(asker.links.deadline() == kNever);
}

TEST_CASE("users that wait for a rank ask it by turns, and each hears of its silence") {
  Asker asker(3);
  asker.links.hear(1);
  asker.await(1);
  for (Awaiting* one : {&asker.other, &asker.third}) {
    asker.links.begin_wait(1, *one, asker.now);
    one->awaited.insert(1);
  }
  int first = 0;
  int second = 0;
  int third = 0;
  asker.other.on_ask = [&](std::uint16_t) { ++second; };
  asker.third.on_ask = [&](std::uint16_t) { ++third; };
  asker.run(kSilent - 10 * kPoll, [&](std::uint16_t) { ++first; });
  CHECK(third > 0);
  CHECK(second >= third);
  CHECK(first >= second);
  CHECK(first <= third + 1);
  asker.user.awaited.clear();
  asker.third.awaited.clear();
  second = 0;
  asker.run(kSilent, [&](std::uint16_t) { ++first; });
  CHECK(second > 0);
  CHECK(asker.other.silences[1] > 0);
  CHECK(asker.user.silences[1] == 0);
}

TEST_CASE("a rank to which packets go another way is asked at once, if it is awaited") {
  Asker asker(3);
  int asked = 0;
  const auto note = [&](std::uint16_t rank) { asked += rank == 1 ? 1 : 100; };
  asker.links.hear(1);
  asker.await(1);
  asker.links.ask_at_once(2);
  asker.links.ask_at_once(1);
  asker.run(kPoll, note);
  CHECK(asked == 1);
  asker.run(kSilent / PeerLinks::kAsksFirst / 2, note);
  CHECK(asked == 1);
}

TEST_CASE("who was asked several times owes several answers, but a bounded number") {
  Asker asker(3);
  CHECK_FALSE(asker.links.answered(1));
  asker.links.was_asked(1);
  CHECK_FALSE(asker.links.answered(1));
  for (int i = 0; i < 300; ++i) asker.links.was_asked(1);
  asker.links.was_asked(2);
  CHECK_FALSE(asker.links.answered(2));
  for (int more = PeerLinks::kAnswersMax - 1; more > 0; --more) CHECK(asker.links.answered(1));
  CHECK_FALSE(asker.links.answered(1));
  CHECK_FALSE(asker.links.answered(1));
}

TEST_CASE("a packet is repeated after a probe timeout that doubles and has a bound") {
  Asker asker(2);
  const TimeNs first = asker.links.repeated_after(1, 0, kNever);
  CHECK(asker.links.repeated_after(1, 1, kNever) == 2 * first);
  CHECK(asker.links.repeated_after(1, 3, kNever) == 8 * first);
  CHECK(asker.links.repeated_after(1, 3, 5 * first) == 5 * first);
  CHECK(asker.links.repeated_after(1, 4'000'000'000, kSilent) == kSilent);
  for (int i = 0; i < 100; ++i) asker.links.sample(1, 2 * kPoll);
  CHECK(asker.links.repeated_after(1, 0, kNever) < first);
}

TEST_CASE("what echoes a packet's number tells the round-trip time once") {
  Asker asker(2);
  constexpr std::uint64_t kNumber = 0x1'2345'6789;
  constexpr auto kLow = static_cast<std::uint32_t>(kNumber);
  asker.links.time(1, kNumber, 100 * kPoll);
  asker.links.echoed(1, kLow + 1, 0, 101 * kPoll);
  CHECK(asker.links.rtt(1) == 10 * kPoll);
  asker.links.echoed(1, kLow, 2 * kPoll, 105 * kPoll);
  CHECK(asker.links.rtt(1) == 3 * kPoll);
  asker.links.echoed(1, kLow, 0, 200 * kPoll);
  CHECK(asker.links.rtt(1) == 3 * kPoll);
  // For how long the other rank kept it is not known: the echo is used up.
  asker.links.time(1, kNumber, 200 * kPoll);
  asker.links.echoed(1, kLow, kNever, 300 * kPoll);
  asker.links.echoed(1, kLow, 0, 300 * kPoll);
  CHECK(asker.links.rtt(1) == 3 * kPoll);
}

TEST_CASE("nobody waits for ever: whoever is awaited answers, or is found silent in time") {
  constexpr std::uint16_t kRanks = 600;
  Asker asker(kRanks);
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) asker.await(rank);
  // Every third rank is dead from the start, and every third one from half a limit on.
  const auto answers = [&](std::uint16_t rank) {
    if (rank % 3 == 1 || (rank % 3 == 2 && asker.now < kSilent / 2)) asker.links.hear(rank);
  };
  std::map<std::uint16_t, TimeNs> found;
  for (TimeNs end = 3 * (kForms + kSilent); asker.now < end;) {
    asker.run(kPoll, answers);
    for (const PeerSilence& silent : asker.silent) found.emplace(silent.rank, asker.now);
    asker.silent.clear();
  }
  for (std::uint16_t rank = 1; rank < kRanks; ++rank) {
    INFO("rank " << rank);
    CHECK(found.contains(rank) == (rank % 3 != 1));
  }
}
