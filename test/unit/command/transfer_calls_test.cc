// SPDX-License-Identifier: BSD-3-Clause
#include "command/transfer_calls.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

namespace gradwire::command {
namespace {

/// Rank 1 of three ranks of two processes each: processes 2 and 3.
struct Fixture {
  static constexpr std::uint32_t kProcesses = 6;
  TransferCalls calls;
  std::vector<std::byte> input = std::vector<std::byte>(6000);
  std::vector<std::byte> output = std::vector<std::byte>(6000);

  explicit Fixture(std::uint16_t streams = 1) : calls({3, 2, nullptr}, 1, 2, 2, streams) {}
  TransferCommand command(Collective collective, std::uint64_t count, std::uint32_t root = 0) {
    TransferCommand made;
    made.call = {collective, DataType::kInt32, RedOp::kSum, count, root, 7};
    const bool blocks = collective == Collective::kAllToAll;
    const std::uint64_t own = count * 4;
    if (collective != Collective::kRecv) {
      made.ranges.input = {input.data(), input.data() + (blocks ? own * kProcesses : own)};
    }
    if (collective != Collective::kSend) {
      made.ranges.output = {output.data(), output.data() + (blocks ? own * kProcesses : own)};
    }
    return made;
  }
  /// What a lane is given, in order.
  std::vector<const collective::TransferSpec*> take(std::uint8_t lane) {
    std::vector<const collective::TransferSpec*> out;
    while (calls.open_some(3) != 0) continue;
    while (const collective::TransferSpec* spec = calls.next(lane)) {
      out.push_back(spec);
      calls.given(lane);
    }
    return out;
  }
  void done(std::uint64_t id) {
    calls.lane_done(id, 0);
    calls.lane_done(id, 1);
  }
  /// The records of calls that have ended since.
  std::vector<int> over() {
    std::vector<int> out;
    TransferCalls::Over each;
    while (calls.pop_over(each)) out.push_back(each.member * 10000 + each.record);
    return out;
  }
};

}  // namespace

TEST_CASE("a send is one transfer, given to every lane, and over when every lane has reported it") {
  Fixture f;
  f.calls.add(1, 5, f.command(Collective::kSend, 10, 4));
  const auto first = f.take(0);
  REQUIRE(first.size() == 1);
  CHECK(first[0]->pair == wire::ProcessPair{3, 4});
  CHECK(first[0]->end == collective::TransferEnd::kSource);
  CHECK(first[0]->terms == wire::TransferTerms{40, 7, wire::TransferCall::kSendRecv});
  CHECK(first[0]->from == f.input.data());
  CHECK(f.calls.has_news());
  CHECK(f.take(1).size() == 1);
  CHECK_FALSE(f.calls.has_news());
  f.calls.lane_done(first[0]->id, 1);
  CHECK(f.over().empty());
  f.calls.lane_done(first[0]->id, 0);
  CHECK(f.over() == std::vector{10005});
}

TEST_CASE("a pair has one transfer under way; others are not held back by one that waits") {
  Fixture f;
  f.calls.add(0, 0, f.command(Collective::kRecv, 1, 0));
  f.calls.add(0, 1, f.command(Collective::kRecv, 2, 0));
  f.calls.add(0, 2, f.command(Collective::kRecv, 3, 5));
  f.calls.add(0, 3, f.command(Collective::kSend, 4, 0));
  auto given = f.take(0);
  REQUIRE(given.size() == 3);
  CHECK(given[0]->terms.bytes == 4);
  CHECK(given[1]->pair == wire::ProcessPair{5, 2});
  CHECK(given[2]->pair == wire::ProcessPair{2, 0});
  f.done(given[1]->id);
  CHECK(f.over() == std::vector{2});
  CHECK(f.take(0).empty());
  f.done(given[0]->id);
  CHECK(f.over() == std::vector{0});
  given = f.take(0);
  REQUIRE(given.size() == 1);
  CHECK(given[0]->terms.bytes == 8);
}

TEST_CASE("streams of a pair do not wait for each other, and each has one lane") {
  Fixture f(3);
  const auto add = [&](std::uint16_t record, std::uint16_t stream, bool up_to = false) {
    TransferCommand recv = f.command(Collective::kRecv, 1u + record, 4);
    recv.stream = stream;
    recv.up_to = up_to;
    f.calls.add(0, record, recv);
  };
  add(0, 2);
  add(1, 2);
  add(2, 1, true);
  add(3, 0);
  f.calls.add(0, 4, f.command(Collective::kAllToAll, 1));
  // From process 4 to 2: stream 2 has lane 0 of two, stream 1 lane 1.
  auto first = f.take(0);
  auto second = f.take(1);
  const auto of_recv = [](std::vector<const collective::TransferSpec*>& given) {
    std::erase_if(
        given, [](const auto* spec) { return spec->terms.call != wire::TransferCall::kSendRecv; });
  };
  of_recv(first);
  of_recv(second);
  REQUIRE(first.size() == 2);
  CHECK(first[0]->pair == wire::ProcessPair{4, 2, 2});
  CHECK(first[0]->terms.bytes == 4);
  CHECK(first[1]->pair == wire::ProcessPair{4, 2, 0});
  REQUIRE(second.size() == 2);
  CHECK(second[0]->pair == wire::ProcessPair{4, 2, 1});
  CHECK(second[0]->up_to);
  CHECK(second[1]->pair == wire::ProcessPair{4, 2, 0});
  f.calls.lane_sized(second[0]->id, 5);
  CHECK_FALSE(f.calls.has_news());
  f.calls.lane_done(second[0]->id, 1);
  CHECK(f.over() == std::vector{2});
  f.calls.lane_done(first[0]->id, 0);
  CHECK(f.over() == std::vector{0});
  first = f.take(0);
  REQUIRE(first.size() == 1);  // the stream's next, and the all-to-all's waits for stream 0
  CHECK(first[0]->terms.bytes == 8);
  CHECK(f.take(1).empty());
  f.done(second[1]->id);
  CHECK(f.over() == std::vector{3});
  CHECK(f.take(1).size() == 1);
}

TEST_CASE("a member that has left leaves others of its rank waiting, of whichever stream") {
  Fixture f(3);
  CHECK_FALSE(f.calls.needs(0, 1));
  TransferCommand recv = f.command(Collective::kRecv, 1, 3);
  recv.stream = 2;
  f.calls.add(0, 0, recv);
  CHECK(f.calls.needs(0, 1));
  TransferCommand send = f.command(Collective::kSend, 1, 2);
  f.calls.add(1, 0, send);
  CHECK(f.calls.needs(0, 1));
  send.stream = 2;
  f.calls.add(1, 1, send);
  CHECK_FALSE(f.calls.needs(0, 1));
}

TEST_CASE("a receive up to a size goes to the first lane until that knows the size") {
  Fixture f;
  TransferCommand recv = f.command(Collective::kRecv, 100, 4);
  recv.up_to = true;
  f.calls.add(0, 7, recv);
  f.calls.add(0, 8, f.command(Collective::kRecv, 3, 4));
  const auto first = f.take(0);
  REQUIRE(first.size() == 1);
  CHECK(first[0]->up_to);
  CHECK(first[0]->terms.bytes == 400);
  CHECK(f.take(1).empty());
  CHECK_FALSE(f.calls.has_news());
  f.calls.lane_sized(first[0]->id, 44);
  CHECK(f.calls.has_news());
  CHECK(f.take(0).empty());
  const auto second = f.take(1);
  REQUIRE(second.size() == 1);
  CHECK_FALSE(second[0]->up_to);
  CHECK(second[0]->terms.bytes == 44);
  CHECK(second[0]->to == f.output.data());
  f.calls.lane_done(first[0]->id, 0);
  CHECK(f.over().empty());
  f.calls.lane_done(first[0]->id, 1);
  TransferCalls::Over over;
  REQUIRE(f.calls.pop_over(over));
  CHECK(over.record == 7);
  CHECK(over.bytes == 44);
  // The pair's next is given to every lane at once, and is one of a size again.
  REQUIRE(f.take(0).size() == 1);
  const auto next = f.take(1);
  REQUIRE(next.size() == 1);
  CHECK_FALSE(next[0]->up_to);
  f.done(next[0]->id);
  REQUIRE(f.calls.pop_over(over));
  CHECK(over.record == 8);
  CHECK(over.bytes == 12);
}

TEST_CASE("an all-to-all has a transfer each way for every process, in the order of the calls") {
  Fixture f;
  f.calls.add(0, 0, f.command(Collective::kRecv, 9, 4));
  f.calls.add(0, 1, f.command(Collective::kAllToAll, 10));
  f.calls.add(0, 2, f.command(Collective::kSend, 8, 4));
  const auto given = f.take(0);
  REQUIRE(given.size() == 1 + 2 * Fixture::kProcesses - 1);
  std::map<int, const collective::TransferSpec*> out;
  std::map<int, const collective::TransferSpec*> in;
  for (const auto* spec : given) {
    if (spec->terms.call != wire::TransferCall::kAllToAll) continue;
    CHECK(spec->terms.bytes == 40);
    const bool goes_out = spec->end == collective::TransferEnd::kSource;
    (goes_out ? out[spec->pair.destination] : in[spec->pair.source]) = spec;
  }
  CHECK(out.size() == Fixture::kProcesses);
  CHECK(in.count(4) == 0);  // behind the receive
  CHECK(out[5]->from == f.input.data() + 200);
  CHECK(in[1]->to == f.output.data() + 40);
  for (const auto* spec : given) {
    if (spec != given[0]) f.done(spec->id);
  }
  CHECK(f.over().empty());
  const auto send = f.take(0);  // its pair has ended its part of the all-to-all
  REQUIRE(send.size() == 1);
  CHECK(send[0]->terms.bytes == 32);
  f.done(given[0]->id);
  CHECK(f.over() == std::vector{0});
  const auto last = f.take(0);
  REQUIRE(last.size() == 1);
  CHECK(last[0]->to == f.output.data() + 160);
  f.done(last[0]->id);
  CHECK(f.over() == std::vector{1});
}

TEST_CASE(
    "a gather and a scatter have a transfer for each process at the root, and one elsewhere") {
  Fixture f;
  f.calls.add(0, 0, f.command(Collective::kGather, 3, 1));
  CHECK(f.take(0).size() == 1);
  TransferCommand root = f.command(Collective::kGather, 3, 3);
  root.ranges.output.end = root.ranges.output.begin + 12 * Fixture::kProcesses;
  f.calls.add(1, 0, root);
  const auto given = f.take(0);
  REQUIRE(given.size() == 1 + Fixture::kProcesses);
  f.calls.add(0, 1, f.command(Collective::kScatter, 3, 3));
  CHECK(f.take(0).size() == 1);
}

TEST_CASE("splits are read when a transfer begins, and what is not in the call's memory is told") {
  Fixture f;
  struct {
    ipc::SplitTable head;
    ipc::SplitTable::Block blocks[2 * Fixture::kProcesses];
  } table{};
  TransferCommand command = f.command(Collective::kAllToAll, 0);
  command.ranges.input = {f.input.data(), f.input.data() + 60};
  command.ranges.output = {f.output.data(), f.output.data() + 30};
  for (std::uint32_t i = 0; i < Fixture::kProcesses; ++i) {
    table.blocks[i] = {i * 10, i == 3 ? 0u : 10u};
    table.blocks[Fixture::kProcesses + i] = {i * 5, 5};
  }
  command.splits = &table.head;
  f.calls.add(0, 0, command);
  CHECK(f.take(0).size() == 2 * Fixture::kProcesses);
  std::uint16_t member = 9;
  CHECK_FALSE(f.calls.pop_wrong_splits(member));

  for (const std::uint64_t wrong : {std::uint64_t{31}, UINT64_MAX - 2}) {
    Fixture g;
    command.ranges.input = {g.input.data(), g.input.data() + 60};
    command.ranges.output = {g.output.data(), g.output.data() + 30};
    table.blocks[Fixture::kProcesses + 2] = {wrong, 5};
    g.calls.add(1, 0, command);
    CHECK(g.take(0).size() == 2 * Fixture::kProcesses - 1);
    CHECK(g.calls.pop_wrong_splits(member));
    CHECK(member == 1);
    CHECK_FALSE(g.calls.pop_wrong_splits(member));
  }
}

TEST_CASE("what a group that ends has not finished is named once each") {
  Fixture f;
  f.calls.add(0, 3, f.command(Collective::kRecv, 1, 0));
  f.calls.add(1, 4, f.command(Collective::kAllToAll, 1));
  std::vector<int> ended;
  TransferCalls::Over each;
  int calls = 0;
  for (; !f.calls.all_ended(); ++calls) {
    if (f.calls.next_unfinished(each)) ended.push_back(each.member * 10000 + each.record);
  }
  CHECK(ended == std::vector{3, 10004});
  // Each looked at a bounded part of the places, and all together at each place once.
  CHECK(calls <= static_cast<int>(2 * ipc::kCompletionEntries / TransferCalls::kLooks + 2));
}

TEST_CASE("calls of many pairs begin in parts, and each pair takes every call once, in order") {
  std::mt19937 random(7);
  const auto pick = [&](std::uint32_t below) {
    return static_cast<std::uint32_t>(random() % below);
  };
  for (int round = 0; round < 200; ++round) {
    Fixture f;
    const auto pair_of = [](const collective::TransferSpec& spec) {
      return std::pair(spec.pair.source, spec.pair.destination);
    };
    std::map<std::pair<std::uint16_t, std::uint16_t>, std::vector<std::uint64_t>> expected, given;
    std::vector<const collective::TransferSpec*> under_way;
    int called = 0;
    int over = 0;
    const auto call = [&] {
      const auto count = static_cast<std::uint64_t>(called + 1);
      const std::uint16_t own = 2;
      const auto other = static_cast<std::uint16_t>(pick(2) * 3);  // process 0 or 3
      switch (pick(3)) {
        case 0:
          f.calls.add(0, static_cast<std::uint16_t>(called),
                      f.command(Collective::kAllToAll, count));
          for (std::uint16_t each = 0; each < Fixture::kProcesses; ++each) {
            expected[{own, each}].push_back(4 * count);
            if (each != own) expected[{each, own}].push_back(4 * count);
          }
          break;
        case 1:
          f.calls.add(0, static_cast<std::uint16_t>(called),
                      f.command(Collective::kSend, count, other));
          expected[{own, other}].push_back(4 * count);
          break;
        default:
          f.calls.add(0, static_cast<std::uint16_t>(called),
                      f.command(Collective::kRecv, count, other));
          expected[{other, own}].push_back(4 * count);
          break;
      }
      ++called;
    };
    while (over < 12) {
      if (called < 12 && pick(3) == 0) call();
      const std::uint32_t most = 1 + pick(4);
      CHECK(f.calls.open_some(most) <= most);
      for (const std::uint8_t lane : {0, 1}) {
        while (const collective::TransferSpec* spec = f.calls.next(lane)) {
          f.calls.given(lane);
          if (lane == 0) continue;
          under_way.push_back(spec);
          // From itself to itself both ends are this process's: the source alone is compared.
          if (spec->pair.source != spec->pair.destination ||
              spec->end == collective::TransferEnd::kSource) {
            given[pair_of(*spec)].push_back(spec->terms.bytes);
          }
        }
      }
      if (!under_way.empty()) {
        const std::size_t which = pick(static_cast<std::uint32_t>(under_way.size()));
        const std::uint64_t id = under_way[which]->id;
        under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(which));
        f.done(id);
      }
      over += static_cast<int>(f.over().size());
    }
    CHECK(given == expected);
    CHECK_FALSE(f.calls.has_news());
  }
}

}  // namespace gradwire::command
