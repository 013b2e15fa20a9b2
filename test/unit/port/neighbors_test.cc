// SPDX-License-Identifier: BSD-3-Clause
#include "port/neighbors.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <initializer_list>
#include <vector>

#include "port/echo.h"

using namespace gradwire;
using namespace gradwire::port;

namespace {

constexpr TimeNs kMs = 1'000'000;

wire::IpAddress address(const char* text) { return *wire::parse_ip(text); }
wire::MacAddress mac(const char* text) { return *wire::parse_mac(text); }

NeighborsConfig config() {
  NeighborsConfig out;
  out.mac = mac("02:00:00:00:00:01");
  out.ip = address("10.0.0.1");
  out.prefix_bits = 24;
  out.retry_ns = 100 * kMs;
  out.attempts = 3;
  out.idle_reachable_ns = 30'000 * kMs;
  return out;
}

std::vector<std::byte> bytes(std::initializer_list<int> values, std::size_t padded = 60) {
  std::vector<std::byte> out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  out.resize(std::max(out.size(), padded));
  return out;
}

// RFC 826, as it was seen on a network: 10.0.0.1 asks who has 10.0.0.2.
const auto kRequestFrame =
    bytes({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0,  0, 0, 0, 1, 8, 6, 0, 1, 8, 0,  6, 4, 0,
           1,    2,    0,    0,    0,    0,    1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2});
// 10.0.0.2 answers with 02:00:00:00:00:02.
const auto kReplyFrame = bytes({2, 0, 0, 0, 0, 1, 2, 0,  0, 0, 0, 2, 8, 6, 0, 1, 8, 0,  6, 4, 0,
                                2, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1});
// 10.0.0.2 asks who has 10.0.0.1.
const auto kTheirRequest =
    bytes({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0,  0, 0, 0, 2, 8, 6, 0, 1, 8, 0,  6, 4, 0,
           1,    2,    0,    0,    0,    0,    2, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1});

std::vector<std::byte> taken(Neighbors& neighbors) {
  NeighborFrame frame;
  if (!neighbors.take_frame(frame)) return {};
  return {frame.view().begin(), frame.view().end()};
}

}  // namespace

TEST_CASE("a request is the one of RFC 826 and a reply resolves") {
  Neighbors neighbors(config());
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kUnknown);
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK(taken(neighbors) == kRequestFrame);
  CHECK(taken(neighbors).empty());
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete);
  CHECK_FALSE(neighbors.lookup(address("10.0.0.2")));

  neighbors.on_frame(kReplyFrame, 1 * kMs);
  REQUIRE(neighbors.lookup(address("10.0.0.2")));
  CHECK(*neighbors.lookup(address("10.0.0.2")) == mac("02:00:00:00:00:02"));
  CHECK(taken(neighbors).empty());
}

TEST_CASE("an unanswered request is repeated so many times, then the address failed") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK_FALSE(taken(neighbors).empty());
  CHECK(neighbors.deadline() == 100 * kMs);
  neighbors.poll(99 * kMs);
  CHECK(taken(neighbors).empty());
  neighbors.poll(100 * kMs);
  CHECK(taken(neighbors) == kRequestFrame);
  neighbors.poll(200 * kMs);
  CHECK(taken(neighbors) == kRequestFrame);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete);
  neighbors.poll(300 * kMs);
  CHECK(taken(neighbors).empty());
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kFailed);
  CHECK(neighbors.deadline() == kNever);

  // Asked for again, it is tried again; a late answer helps.
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 400 * kMs));
  CHECK(taken(neighbors) == kRequestFrame);
  neighbors.on_frame(kReplyFrame, 401 * kMs);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kReachable);
}

// --- a neighbour that is known -----------------------------------------------------------------

namespace {

const auto kOldMac = mac("02:00:00:00:00:02");
const auto kNewMac = mac("02:00:00:00:00:99");

NeighborsConfig quick() {
  auto out = config();
  out.reachable_ns = 400 * kMs;
  out.delay_ns = out.probe_ns = 100 * kMs;
  out.unicast_probes = 3;
  out.rest_ns = 1'000 * kMs;
  return out;
}

/// 10.0.0.2, known by kReplyFrame, and a group uses it.
Neighbors with_used(TimeNs now = 0) {
  Neighbors out(quick());
  REQUIRE(out.resolve(address("10.0.0.2"), now));
  out.on_frame(kReplyFrame, now);
  REQUIRE(out.hold(address("10.0.0.2")));
  while (!taken(out).empty()) {
  }
  return out;
}

/// The same answer by another host.
std::vector<std::byte> reply_by(const wire::MacAddress& by) {
  auto frame = kReplyFrame;
  for (std::size_t i = 0; i < 6; ++i) frame[6 + i] = frame[22 + i] = std::byte{by[i]};
  return frame;
}

enum class To { kNobody, kOld, kAll, kElse };
/// Whom the next frame asks.
To asked(Neighbors& neighbors) {
  const auto frame = taken(neighbors);
  if (frame.empty()) return To::kNobody;
  if (frame[0] == std::byte{0xff}) return To::kAll;
  return frame[5] == std::byte{2} ? To::kOld : To::kElse;
}

bool is_event(Neighbors& neighbors, NeighborEvent::Type type) {
  NeighborEvent event;
  return neighbors.take_event(event) && event.type == type;
}

}  // namespace

TEST_CASE("an answer that no group needs grows old, and is asked for when somebody wants it") {
  Neighbors neighbors(config());
  const auto ip = address("10.0.0.2");
  REQUIRE(neighbors.resolve(ip, 0));
  (void)taken(neighbors);
  neighbors.on_frame(kReplyFrame, 0);
  CHECK(neighbors.deadline() == 30'000 * kMs);
  neighbors.poll(30'000 * kMs);
  CHECK(neighbors.state(ip) == NeighborState::kStale);
  CHECK_FALSE(neighbors.lookup(ip));
  CHECK(neighbors.deadline() == kNever);
  CHECK(asked(neighbors) == To::kNobody);

  REQUIRE(neighbors.resolve(ip, 40'000 * kMs));
  CHECK(neighbors.state(ip) == NeighborState::kProbe);
  CHECK(asked(neighbors) == To::kOld);
  SECTION("it answers") {
    neighbors.on_frame(kReplyFrame, 40'001 * kMs);
    CHECK(neighbors.lookup(ip) == kOldMac);
  }
  SECTION("another one does, but only when all are asked") {
    neighbors.on_frame(reply_by(kNewMac), 40'001 * kMs);
    CHECK_FALSE(neighbors.lookup(ip));
    neighbors.poll(41'000 * kMs);
    CHECK(asked(neighbors) == To::kAll);
    neighbors.on_frame(reply_by(kNewMac), 41'001 * kMs);
    neighbors.poll(42'000 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
  SECTION("nobody does") {
    TimeNs now = 40'000 * kMs;
    int questions = 0;
    while (neighbors.deadline() != kNever) {
      neighbors.poll(now = neighbors.deadline());
      questions += asked(neighbors) == To::kAll ? 1 : 0;
    }
    CHECK(questions == 3);
    CHECK(neighbors.state(ip) == NeighborState::kFailed);
  }
}

TEST_CASE("a neighbour in use is asked for when nothing confirms it, and never dropped for that") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  // As long as the transport confirms it, nobody asks.
  TimeNs now = 0;
  for (; now < 10'000 * kMs; now += 100 * kMs) {
    neighbors.confirm(ip, now);
    neighbors.poll(now);
  }
  CHECK(neighbors.state(ip) == NeighborState::kReachable);
  CHECK(asked(neighbors) == To::kNobody);

  now = neighbors.deadline();
  neighbors.poll(now);
  CHECK(neighbors.state(ip) == NeighborState::kDelay);
  CHECK(asked(neighbors) == To::kNobody);
  neighbors.poll(now += 100 * kMs);
  CHECK(neighbors.state(ip) == NeighborState::kProbe);
  CHECK(asked(neighbors) == To::kOld);
  CHECK(neighbors.lookup(ip) == kOldMac);
  SECTION("it answers") {
    neighbors.on_frame(kReplyFrame, now);
    CHECK(neighbors.state(ip) == NeighborState::kReachable);
  }
  SECTION("its packets do") {
    neighbors.confirm(ip, now);
    CHECK(neighbors.state(ip) == NeighborState::kReachable);
  }
  SECTION("all answers are lost: a bounded number of questions, and it stays where it is") {
    int old = 1;
    int all = 0;
    const TimeNs end = now + 20'000 * kMs;
    for (; now < end; now += 10 * kMs) {
      neighbors.poll(now);
      for (To to = asked(neighbors); to != To::kNobody; to = asked(neighbors)) {
        ++(to == To::kAll ? all : old);
      }
      CHECK(neighbors.lookup(ip) == kOldMac);
    }
    // 3 + 3 questions, then rests of 1, 2, 4, 8 and 16 s.
    CHECK(old == 5 * 3);
    CHECK(all == 5 * 3);
    CHECK(neighbors.counters().unanswered == 5);
    neighbors.on_frame(kReplyFrame, now);
    CHECK(neighbors.lookup(ip) == kOldMac);
  }
}

TEST_CASE("a neighbour that was known and answered no more is found again by whoever asks next") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  neighbors.suspect(ip, 10 * kMs);
  neighbors.release(ip);
  TimeNs now = 10 * kMs;
  while (neighbors.state(ip) == NeighborState::kProbe) neighbors.poll(now = neighbors.deadline());
  CHECK(neighbors.state(ip) == NeighborState::kFailed);
  REQUIRE(neighbors.resolve(ip, now));
  neighbors.on_frame(kReplyFrame, now + kMs);
  CHECK(neighbors.lookup(ip) == kOldMac);
}

TEST_CASE("a neighbour that is silent is asked at once, and found where it is now") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  neighbors.suspect(ip, 10 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  neighbors.suspect(ip, 20 * kMs);
  CHECK(asked(neighbors) == To::kNobody);
  neighbors.on_frame(reply_by(kNewMac), 30 * kMs);  // too early: it has not been given time
  CHECK(neighbors.lookup(ip) == kOldMac);
  neighbors.poll(110 * kMs);
  CHECK(asked(neighbors) == To::kAll);
  neighbors.on_frame(reply_by(kNewMac), 111 * kMs);
  neighbors.poll(210 * kMs);  // it had been too early: others go first
  CHECK(neighbors.lookup(ip) == kNewMac);
  CHECK(neighbors.counters().moved == 1);
  CHECK(neighbors.counters().claims == 1);
  CHECK(is_event(neighbors, NeighborEvent::Type::kClaimed));
  CHECK(is_event(neighbors, NeighborEvent::Type::kMoved));
}

TEST_CASE("without a sign of silence the known address's answer has time to come") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  TimeNs now = 0;
  To to = To::kNobody;
  for (; to != To::kAll; now += 10 * kMs) {
    neighbors.poll(now);
    to = asked(neighbors);
  }
  neighbors.on_frame(reply_by(kNewMac), now);
  CHECK(neighbors.lookup(ip) == kOldMac);
  SECTION("it comes") {
    neighbors.on_frame(kReplyFrame, now + 1);
    CHECK(neighbors.state(ip) == NeighborState::kReachable);
    neighbors.poll(now + 100 * kMs);
    CHECK(neighbors.lookup(ip) == kOldMac);
  }
  SECTION("it does not") {
    neighbors.poll(now + 100 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
}

TEST_CASE("one that answers questions but takes no packets gives way to another one's answer") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  neighbors.suspect(ip, 10 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  neighbors.on_frame(kReplyFrame, 11 * kMs);
  CHECK(neighbors.state(ip) == NeighborState::kReachable);
  neighbors.suspect(ip, 12 * kMs);
  CHECK(asked(neighbors) == To::kNobody);  // not at once
  neighbors.suspect(ip, 200 * kMs);
  CHECK(asked(neighbors) == To::kAll);
  neighbors.on_frame(kReplyFrame, 201 * kMs);
  SECTION("there is another one") {
    neighbors.on_frame(reply_by(kNewMac), 202 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
  SECTION("there is none") {
    neighbors.poll(300 * kMs);
    CHECK(neighbors.state(ip) == NeighborState::kReachable);
    CHECK(neighbors.lookup(ip) == kOldMac);
    // Asked less and less often, as long as the silence lasts.
    int questions = 0;
    for (TimeNs now = 300 * kMs; now < 10'000 * kMs; now += 10 * kMs) {
      neighbors.suspect(ip, now);
      neighbors.poll(now);
      while (asked(neighbors) != To::kNobody) {
        ++questions;
        neighbors.on_frame(kReplyFrame, now);
      }
    }
    CHECK(questions < 25);
    neighbors.confirm(ip, 10'000 * kMs);
    neighbors.suspect(ip, 10'001 * kMs);
    CHECK(asked(neighbors) == To::kOld);
  }
}

TEST_CASE("whatever others say, a living neighbour stays where it is") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  auto request = kTheirRequest;
  for (std::size_t i = 0; i < 6; ++i) request[6 + i] = request[22 + i] = std::byte{kNewMac[i]};
  int moments = 0;
  for (TimeNs now = 0; now < 60'000 * kMs; now += kMs) {
    neighbors.on_frame(reply_by(kNewMac), now);
    neighbors.on_frame(request, now);
    neighbors.poll(now);
    // What it was asked, it answers.
    for (auto frame = taken(neighbors); !frame.empty(); frame = taken(neighbors)) {
      if (frame[21] == std::byte{1} && frame[5] == std::byte{2})
        neighbors.on_frame(kReplyFrame, now);
    }
    moments += neighbors.lookup(ip) == kOldMac ? 1 : 0;
  }
  CHECK(moments == 60'000);
  CHECK(neighbors.counters().moved == 0);
  CHECK(neighbors.counters().claims == 120'000);
  // Said now and then, not a hundred thousand times.
  int said = 0;
  while (is_event(neighbors, NeighborEvent::Type::kClaimed)) ++said;
  CHECK(said == 6);
}

TEST_CASE("who answered before it was asked goes after who did not, whichever came first") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  const auto pusher = mac("02:66:66:66:66:66");
  neighbors.on_frame(reply_by(pusher), kMs);
  neighbors.suspect(ip, 10 * kMs);
  neighbors.poll(110 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  CHECK(asked(neighbors) == To::kAll);
  neighbors.on_frame(reply_by(pusher), 111 * kMs);
  CHECK(neighbors.lookup(ip) == kOldMac);
  SECTION("there is another one") {
    neighbors.on_frame(reply_by(kNewMac), 112 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
  SECTION("there is none") {
    neighbors.poll(210 * kMs);
    CHECK(neighbors.lookup(ip) == pusher);
    // Its packets come to nothing, and then the right one is back.
    neighbors.suspect(ip, 1'000 * kMs);
    CHECK(asked(neighbors) == To::kAll);
    neighbors.on_frame(reply_by(pusher), 1'001 * kMs);
    neighbors.on_frame(reply_by(kNewMac), 1'002 * kMs);
    CHECK(neighbors.lookup(ip) == kNewMac);
  }
}

TEST_CASE("another host with the port's own address is noticed, at the start and later") {
  Neighbors neighbors(config());
  neighbors.on_link_up(0);
  neighbors.poll(0);
  const auto probe = taken(neighbors);
  REQUIRE(probe.size() == 60);
  CHECK(probe[0] == std::byte{0xff});
  CHECK(
      std::all_of(probe.begin() + 28, probe.begin() + 32, [](auto b) { return b == std::byte{}; }));
  CHECK(std::equal(probe.begin() + 38, probe.begin() + 42, kRequestFrame.begin() + 28));
  for (TimeNs now = 0; now < 1'000 * kMs; now += 100 * kMs) neighbors.poll(now);
  int probes = 0;
  while (asked(neighbors) == To::kAll) ++probes;
  CHECK(probes == 3 - 1);

  auto answer = kReplyFrame;
  answer[31] = std::byte{1};  // 10.0.0.1 is at 02:00:00:00:00:02
  CHECK_FALSE(neighbors.duplicate());
  neighbors.on_frame(answer, 1);
  neighbors.on_frame(answer, 2);
  CHECK(neighbors.duplicate() == kOldMac);
  CHECK(neighbors.counters().duplicates == 2);
  CHECK(is_event(neighbors, NeighborEvent::Type::kDuplicate));
  NeighborEvent none;
  CHECK_FALSE(neighbors.take_event(none));
  // The port's own frame that comes back is none.
  for (std::size_t i = 0; i < 6; ++i) answer[22 + i] = std::byte{config().mac[i]};
  neighbors.on_frame(answer, 3);
  CHECK(neighbors.counters().duplicates == 2);
}

TEST_CASE("a link that comes back: neighbours in use are asked at once, and kept until then") {
  Neighbors neighbors = with_used();
  const auto ip = address("10.0.0.2");
  neighbors.forget_learnt();
  CHECK(neighbors.lookup(ip) == kOldMac);
  neighbors.on_link_up(5 * kMs);
  CHECK(asked(neighbors) == To::kOld);
  neighbors.poll(105 * kMs);
  CHECK(asked(neighbors) == To::kAll);  // whether the own address is taken
  CHECK(asked(neighbors) == To::kAll);
  neighbors.on_frame(reply_by(kNewMac), 106 * kMs);
  CHECK(neighbors.lookup(ip) == kNewMac);
}

TEST_CASE("after the link was down what was learnt is asked for anew") {
  Neighbors neighbors(config());
  neighbors.add_static(address("10.0.0.3"), mac("02:00:00:00:00:03"));
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK(taken(neighbors) == kRequestFrame);
  neighbors.on_frame(kReplyFrame, 1);
  REQUIRE(neighbors.lookup(address("10.0.0.2")));
  neighbors.forget_learnt();
  CHECK_FALSE(neighbors.lookup(address("10.0.0.2")));
  CHECK(neighbors.lookup(address("10.0.0.3")) == mac("02:00:00:00:00:03"));
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 2));
  CHECK(taken(neighbors) == kRequestFrame);
}

TEST_CASE("who asks for us gets an answer, and teaches nothing") {
  Neighbors neighbors(config());
  neighbors.on_frame(kTheirRequest, 0);
  const auto reply = taken(neighbors);
  const auto expected = bytes({2, 0, 0, 0, 0, 2, 2, 0,  0, 0, 0, 1, 8, 6, 0, 1, 8, 0,  6, 4, 0,
                               2, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2});
  CHECK(reply == expected);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kUnknown);

  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  (void)taken(neighbors);
  // Not even that by a question: whoever asks may say what it likes of itself.
  neighbors.on_frame(kTheirRequest, 1);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete);
}

TEST_CASE("what is not for us, not whole, or not ARP is ignored") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  (void)taken(neighbors);
  const auto ignored = [&](std::vector<std::byte> frame) {
    neighbors.on_frame(frame, 1);
    return neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete &&
           taken(neighbors).empty();
  };
  for (std::size_t size = 0; size < 42; ++size) {
    CHECK(ignored({kReplyFrame.begin(), kReplyFrame.begin() + static_cast<std::ptrdiff_t>(size)}));
  }
  const auto with = [&](std::size_t at, int value) {
    auto frame = kReplyFrame;
    frame[at] = static_cast<std::byte>(value);
    return frame;
  };
  CHECK(ignored(with(41, 9)));     // for 10.0.0.9
  CHECK(ignored(with(15, 2)));     // not Ethernet
  CHECK(ignored(with(17, 1)));     // not IPv4
  CHECK(ignored(with(18, 8)));     // address length
  CHECK(ignored(with(21, 3)));     // neither request nor reply
  CHECK(ignored(with(22, 1)));     // multicast sender
  CHECK(ignored(with(31, 1)));     // says that it has our address
  CHECK(ignored(with(13, 0x07)));  // another EtherType
}

TEST_CASE("an address off the network and IPv6 are refused by name; static entries stay") {
  Neighbors neighbors(config());
  const auto off = neighbors.resolve(address("10.0.1.2"), 0);
  REQUIRE_FALSE(off);
  CHECK(off.error().message.find("10.0.1.2") != std::string::npos);
  CHECK(off.error().message.find("10.0.0.1/24") != std::string::npos);
  CHECK_FALSE(neighbors.resolve(address("fe80::1"), 0));

  neighbors.add_static(address("10.0.0.7"), mac("02:00:00:00:00:07"));
  REQUIRE(neighbors.resolve(address("10.0.0.7"), 0));
  CHECK(taken(neighbors).empty());
  neighbors.poll(3'600'000 * kMs);
  CHECK(*neighbors.lookup(address("10.0.0.7")) == mac("02:00:00:00:00:07"));
}

TEST_CASE("strangers get so many answers, whoever floods, and neighbours theirs all the same") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  neighbors.on_frame(kReplyFrame, 0);
  while (!taken(neighbors).empty()) {
  }
  auto stranger = kTheirRequest;
  stranger[31] = std::byte{77};  // 10.0.0.77
  int answers = 0;
  for (int i = 0; i < 100'000; ++i) {
    neighbors.on_frame(stranger, i * 10'000);  // for a second
    while (!taken(neighbors).empty()) ++answers;
  }
  CHECK(answers >= 1'000);
  CHECK(answers <= 1'000 + static_cast<int>(ReplyLimit::kBurst));
  neighbors.on_frame(kTheirRequest, 1'000 * kMs);
  CHECK_FALSE(taken(neighbors).empty());
}

TEST_CASE("the table and the answers are bounded") {
  auto small = config();
  small.max_entries = 1;
  Neighbors neighbors(small);
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  CHECK(neighbors.resolve(address("10.0.0.3"), 0).error().code == ErrorCode::kResourceExhausted);

  for (int i = 0; i < 10'000; ++i) neighbors.on_frame(kTheirRequest, i * kMs);
  int frames = 0;
  while (!taken(neighbors).empty()) ++frames;
  CHECK(frames == 256);
}

namespace {

wire::IpAddress made_up(unsigned i) {
  wire::IpAddress ip = address("10.0.0.0");
  ip.bytes[2] = static_cast<std::uint8_t>(i / 256);
  ip.bytes[3] = static_cast<std::uint8_t>(i % 256);
  return ip;
}

/// A reply from `ip`, whose MAC address ends like its number.
std::vector<std::byte> reply_from(const wire::IpAddress& ip) {
  auto frame = kReplyFrame;
  for (std::size_t i = 0; i < 4; ++i) frame[28 + i] = std::byte{ip.bytes[i]};
  return frame;
}

/// Asked for, and nobody answers: until all have failed.
void ask_in_vain(Neighbors& neighbors, unsigned first, unsigned count, TimeNs& now) {
  for (unsigned i = first; i < first + count; ++i) REQUIRE(neighbors.resolve(made_up(i), now));
  for (int i = 0; i < 20; ++i) {
    neighbors.poll(now += 100 * kMs);
    while (!taken(neighbors).empty()) {
    }
  }
}

NeighborsConfig wide(std::size_t max_entries) {
  auto out = config();
  out.ip = address("10.0.0.1");
  out.prefix_bits = 16;
  out.max_entries = max_entries;
  return out;
}

}  // namespace

TEST_CASE("addresses that nobody has keep no neighbour out") {
  Neighbors neighbors(wide(1024));
  TimeNs now = 0;
  ask_in_vain(neighbors, 256, 1024, now);
  CHECK(neighbors.size() == 1024);
  const wire::IpAddress real = address("10.0.0.2");
  REQUIRE(neighbors.resolve(real, now));
  neighbors.on_frame(kReplyFrame, now);
  CHECK(neighbors.lookup(real));
  CHECK(neighbors.size() == 1024);
  CHECK(neighbors.counters().evicted == 1);
  // The one that was asked for first went.
  CHECK(neighbors.state(made_up(256)) == NeighborState::kUnknown);
  CHECK(neighbors.state(made_up(257)) == NeighborState::kFailed);

  // However many more are made up, the neighbour that lives stays.
  for (int i = 1; i < 10; ++i) ask_in_vain(neighbors, 256 + 1024u * i, 1023, now);
  CHECK(neighbors.lookup(real));
  CHECK(neighbors.size() == 1024);
}

TEST_CASE("a full table keeps what is static, used by a group, or waited for") {
  Neighbors neighbors(wide(4));
  neighbors.add_static(address("10.0.0.7"), mac("02:00:00:00:00:07"));
  TimeNs now = 0;
  const wire::IpAddress used = address("10.0.0.2");
  REQUIRE(neighbors.resolve(used, now));
  neighbors.on_frame(kReplyFrame, now);
  REQUIRE(neighbors.hold(used));
  CHECK_FALSE(neighbors.hold(address("10.0.0.99")));
  // It is used still, though it answers no more and the link was down.
  neighbors.forget_learnt();
  ask_in_vain(neighbors, 256, 1, now);

  const wire::IpAddress waited = address("10.0.0.3");
  REQUIRE(neighbors.resolve(waited, now));
  now += 999 * kMs;
  REQUIRE(neighbors.resolve(address("10.0.0.4"), now));  // in the made-up one's place
  CHECK(neighbors.counters().evicted == 1);
  const auto none = neighbors.resolve(address("10.0.0.5"), now);
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::kResourceExhausted);
  CHECK(none.error().message.find("the table of neighbours is full") != std::string::npos);
  CHECK(neighbors.state(waited) == NeighborState::kIncomplete);

  neighbors.release(used);
  REQUIRE(neighbors.resolve(address("10.0.0.5"), now));
  CHECK(neighbors.state(used) == NeighborState::kUnknown);
  CHECK(neighbors.state(waited) == NeighborState::kIncomplete);
  CHECK(neighbors.lookup(address("10.0.0.7")));
}

// A router that answers for every address (proxy ARP) makes each of them look alive.
TEST_CASE("addresses that answer but that no group uses go last, and do go") {
  Neighbors neighbors(wide(3));
  TimeNs now = 0;
  for (unsigned i = 2; i < 4; ++i) {
    REQUIRE(neighbors.resolve(made_up(i), now + i));
    neighbors.on_frame(reply_from(made_up(i)), now + i);
    REQUIRE(neighbors.lookup(made_up(i)));
  }
  ask_in_vain(neighbors, 256, 1, now);
  REQUIRE(neighbors.resolve(made_up(4), now));
  CHECK(neighbors.state(made_up(256)) == NeighborState::kUnknown);
  CHECK(neighbors.lookup(made_up(2)));
  REQUIRE(neighbors.resolve(made_up(5), now));
  CHECK(neighbors.state(made_up(2)) == NeighborState::kUnknown);
  CHECK(neighbors.lookup(made_up(3)));
}

TEST_CASE("ARP from a group of hosts, or a reply to one, is refused and counted") {
  Neighbors neighbors(config());
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  (void)taken(neighbors);
  const auto refused = [&](std::vector<std::byte> frame, std::size_t at, int value) {
    const std::uint64_t before = neighbors.counters().refused;
    frame[at] = static_cast<std::byte>(value);
    neighbors.on_frame(frame, 1);
    return neighbors.counters().refused == before + 1 && taken(neighbors).empty() &&
           neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete;
  };
  CHECK(refused(kReplyFrame, 0, 0xff));    // to many
  CHECK(refused(kReplyFrame, 6, 3));       // by a group, on Ethernet
  CHECK(refused(kReplyFrame, 22, 3));      // by a group, in ARP
  CHECK(refused(kTheirRequest, 6, 0xff));  // an answer would go to all
  CHECK(refused(kTheirRequest, 22, 0xff));
  neighbors.on_frame(kReplyFrame, 1);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kReachable);
}

TEST_CASE("on a VLAN, frames carry the tag and those without are ignored") {
  auto tagged = config();
  tagged.vlan_id = 7;
  Neighbors neighbors(tagged);
  REQUIRE(neighbors.resolve(address("10.0.0.2"), 0));
  auto expected = kRequestFrame;
  const auto tag = bytes({0x81, 0, 0, 7}, 4);
  expected.insert(expected.begin() + 12, tag.begin(), tag.end());
  expected.resize(60);
  CHECK(taken(neighbors) == expected);
  neighbors.on_frame(kReplyFrame, 1);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kIncomplete);
  auto reply = kReplyFrame;
  reply.insert(reply.begin() + 12, tag.begin(), tag.end());
  neighbors.on_frame(reply, 1);
  CHECK(neighbors.state(address("10.0.0.2")) == NeighborState::kReachable);
}

TEST_CASE("an echo request becomes its reply in place") {
  // 10.0.0.2 pings 10.0.0.1, identifier 0x1234, sequence 1, 4 bytes of data.
  auto frame = bytes({2, 0,  0, 0, 0, 1, 2,    0,    0,    0,    0,    2,    8,    0,   0x45, 0,
                      0, 32, 0, 1, 0, 0, 64,   1,    0x66, 0xda, 10,   0,    0,    2,   10,   0,
                      0, 1,  8, 0, 0, 0, 0x12, 0x34, 0,    1,    0x61, 0x62, 0x63, 0x64});
  // Checksum of the ICMP part: 0x0800 + 0x1234 + 0x0001 + 0x6162 + 0x6364 = 0xdefb.
  frame[36] = std::byte{0x21};
  frame[37] = std::byte{0x04};
  wire::FrameView view;
  REQUIRE(wire::parse_frame(frame, view) == wire::Drop::kNone);
  REQUIRE(view.kind == wire::FrameKind::kIcmpEcho);
  const auto before = frame;

  SECTION("answered") {
    REQUIRE(answer_echo(frame, view));
    CHECK(std::equal(frame.begin(), frame.begin() + 6, before.begin() + 6));
    CHECK(std::equal(frame.begin() + 6, frame.begin() + 12, before.begin()));
    CHECK(std::equal(frame.begin() + 26, frame.begin() + 30, before.begin() + 30));
    CHECK(std::equal(frame.begin() + 30, frame.begin() + 34, before.begin() + 26));
    CHECK(frame[34] == std::byte{0});
    CHECK(frame[36] == std::byte{0x29});
    CHECK(frame[37] == std::byte{0x04});
    CHECK(std::equal(frame.begin() + 38, frame.end(), before.begin() + 38));
  }
  SECTION("from nobody who could be answered") {
    const auto left_alone = [&](const char* source_mac, const char* source_ip) {
      view.source_mac = mac(source_mac);
      view.source_ip = address(source_ip);
      return !answer_echo(frame, view) && frame == before;
    };
    CHECK(left_alone("ff:ff:ff:ff:ff:ff", "10.0.0.2"));
    CHECK(left_alone("01:00:5e:00:00:01", "10.0.0.2"));
    CHECK(left_alone("02:00:00:00:00:02", "255.255.255.255"));
    CHECK(left_alone("02:00:00:00:00:02", "224.0.0.1"));
    CHECK(left_alone("02:00:00:00:00:02", "127.0.0.1"));
    CHECK(left_alone("02:00:00:00:00:02", "0.0.0.0"));
    CHECK(left_alone("02:00:00:00:00:02", "10.0.0.1"));
  }
  SECTION("a wrong checksum is left alone") {
    frame[45] ^= std::byte{1};
    const auto wrong = frame;
    CHECK_FALSE(answer_echo(frame, view));
    CHECK(frame == wrong);
  }
}
