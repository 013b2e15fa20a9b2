// SPDX-License-Identifier: BSD-3-Clause
#include "port/fault_stage.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "lane/counters.h"
#include "port/pools.h"

using namespace gradwire;
using namespace gradwire::port;

namespace {

/// Puts numbered frames through a stage and frees what comes out.
struct Fixture {
  explicit Fixture(std::uint64_t salt = 0) : stage(false, salt) {
    static int instances = 0;
    auto made = LanePools::create({.buffer_bytes = 2048,
                                   .packet_mbufs = 1024,
                                   .control_mbufs = 64,
                                   .name_prefix = "fault" + std::to_string(++instances)});
    REQUIRE(made);
    pools = std::move(*made);
  }
  ~Fixture() {
    stage.clear();
    CHECK(rte_mempool_in_use_count(pools->packet()) == 0);
  }

  rte_mbuf* frame(std::uint32_t number) {
    rte_mbuf* made = rte_pktmbuf_alloc(pools->packet());
    REQUIRE(made != nullptr);
    char* bytes = rte_pktmbuf_append(made, 64);
    REQUIRE(bytes != nullptr);
    std::memset(bytes, 0, 64);
    std::memcpy(bytes, &number, sizeof number);
    return made;
  }

  /// `count` frames in bursts of `burst`, 1 us between bursts. @return the numbers that came out.
  std::vector<std::uint32_t> send(std::uint32_t count, std::uint32_t burst = 8) {
    std::vector<std::uint32_t> out;
    for (std::uint32_t sent = 0; sent < count;) {
      std::vector<rte_mbuf*> frames;
      while (frames.size() < burst && sent < count) frames.push_back(frame(sent++));
      take(stage.pass(frames, now), out);
      now += 1'000;
    }
    return out;
  }
  /// What is still held, after `ns`.
  std::vector<std::uint32_t> wait(TimeNs ns) {
    now += ns;
    std::vector<std::uint32_t> out;
    take(stage.pass({}, now), out);
    return out;
  }
  void take(std::span<rte_mbuf* const> frames, std::vector<std::uint32_t>& out) {
    for (rte_mbuf* frame : frames) {
      const auto* bytes = rte_pktmbuf_mtod(frame, const std::uint8_t*);
      std::uint32_t number = 0;
      std::memcpy(&number, bytes, sizeof number);
      out.push_back(number);
      for (int i = 0; i < 64; ++i) bits += __builtin_popcount(bytes[i]);
      rte_pktmbuf_free(frame);
    }
  }

  std::unique_ptr<LanePools> pools;
  FaultStage stage;
  TimeNs now = 1'000'000;
  int bits = 0;  // that are set in what came out
};

std::vector<std::uint32_t> all(std::uint32_t count) {
  std::vector<std::uint32_t> out(count);
  for (std::uint32_t i = 0; i < count; ++i) out[i] = i;
  return out;
}

}  // namespace

TEST_CASE("a stage without faults passes everything and may be left out") {
  Fixture f;
  CHECK(f.stage.idle());
  f.stage.configure({});
  CHECK(f.stage.idle());
  CHECK(f.send(100) == all(100));
  CHECK(f.stage.counters().frames == 0);
  CHECK(f.stage.deadline() == kNever);
}

TEST_CASE("this seed loses these frames, on every machine") {
  Fixture f;
  f.stage.configure({.seed = 42, .drop = 0.1});
  CHECK_FALSE(f.stage.idle());
  std::vector<std::uint32_t> lost = all(50);
  for (const std::uint32_t number : f.send(50)) std::erase(lost, number);
  CHECK(lost == std::vector<std::uint32_t>{20, 34, 36, 44});
  CHECK(read_counter(f.stage.counters().dropped) == lost.size());
  CHECK(read_counter(f.stage.counters().frames) == 50);
  // The same seed again: the same frames; another salt: others.
  f.stage.configure({.seed = 42, .drop = 0.1});
  std::vector<std::uint32_t> again = all(50);
  for (const std::uint32_t number : f.send(50)) std::erase(again, number);
  CHECK(again == lost);
  Fixture other(1);
  other.stage.configure({.seed = 42, .drop = 0.1});
  std::vector<std::uint32_t> others = all(50);
  for (const std::uint32_t number : other.send(50)) std::erase(others, number);
  CHECK(others != lost);
  // Other faults do not change which frames are lost.
  f.stage.configure({.seed = 42, .drop = 0.1, .duplicate = 0.5});
  std::vector<std::uint32_t> with_copies = all(50);
  for (const std::uint32_t number : f.send(50)) std::erase(with_copies, number);
  CHECK(with_copies == lost);
}

TEST_CASE("a share is what it says") {
  Fixture f;
  f.stage.configure({.drop = 0.01});
  f.send(100'000);
  const std::uint64_t dropped = read_counter(f.stage.counters().dropped);
  // Six standard deviations.
  CHECK(dropped > 811);
  CHECK(dropped < 1'189);
  f.stage.configure({.drop = 1});
  CHECK(f.send(1'000).empty());
}

TEST_CASE("a duplicate is a copy of its own, and follows its frame's place") {
  Fixture f;
  f.stage.configure({.duplicate = 1});
  std::vector<rte_mbuf*> frames = {f.frame(7)};
  const auto out = f.stage.pass(frames, f.now);
  REQUIRE(out.size() == 2);
  CHECK(out[0] != out[1]);
  CHECK(rte_pktmbuf_data_len(out[0]) == 64);
  CHECK(rte_pktmbuf_mtod(out[0], void*) != rte_pktmbuf_mtod(out[1], void*));
  std::vector<std::uint32_t> numbers;
  f.take(out, numbers);
  CHECK(numbers == std::vector<std::uint32_t>{7, 7});
}

TEST_CASE("without an mbuf there is no duplicate, and no loss either") {
  Fixture f;
  std::vector<rte_mbuf*> taken;
  rte_mbuf* last = f.frame(1);
  while (rte_mbuf* frame = rte_pktmbuf_alloc(f.pools->packet())) taken.push_back(frame);
  f.stage.configure({.duplicate = 1});
  std::vector<std::uint32_t> numbers;
  f.take(f.stage.pass({&last, 1}, f.now), numbers);
  CHECK(numbers.size() == 1);
  CHECK(read_counter(f.stage.counters().no_mbuf) == 1);
  for (rte_mbuf* frame : taken) rte_pktmbuf_free(frame);
}

TEST_CASE("a corrupt frame has one bit turned over, and a shared one is copied before") {
  Fixture f;
  f.stage.configure({.corrupt = 1});
  f.take(f.stage.pass(std::vector<rte_mbuf*>{f.frame(0)}, f.now),
         *std::make_unique<std::vector<std::uint32_t>>());
  CHECK(f.bits == 1);
  rte_mbuf* shared = f.frame(0);
  rte_mbuf_refcnt_update(shared, 1);
  const auto out = f.stage.pass({&shared, 1}, f.now);
  REQUIRE(out.size() == 1);
  CHECK(out[0] != shared);
  std::vector<std::uint32_t> numbers;
  f.bits = 0;
  f.take(out, numbers);
  CHECK(f.bits == 1);
  f.bits = 0;
  f.take({&shared, 1}, numbers);
  CHECK(f.bits == 0);
  CHECK(read_counter(f.stage.counters().corrupted) == 2);
}

TEST_CASE("a delayed frame comes when it is due, not before") {
  Fixture f;
  f.stage.configure({.delay = 1, .delay_us = 300});
  CHECK(f.send(4, 4).empty());
  CHECK(read_counter(f.stage.counters().held) == 4);
  CHECK(f.stage.deadline() == 1'300'000);
  CHECK(f.wait(298'999).empty());
  CHECK(f.wait(1) == all(4));
  CHECK(f.stage.deadline() == kNever);
  CHECK(read_counter(f.stage.counters().held) == 0);
  CHECK(read_counter(f.stage.counters().delayed) == 4);
}

TEST_CASE("a reordered frame is overtaken by so many frames at most") {
  Fixture f;
  constexpr std::uint32_t kFrames = 2'000;
  f.stage.configure({.reorder = 0.2, .reorder_frames = 5});
  std::vector<std::uint32_t> out = f.send(kFrames);
  for (const std::uint32_t late : f.wait(FaultStage::kOvertakeNs)) out.push_back(late);
  REQUIRE(out.size() == kFrames);
  std::uint32_t most = 0;
  std::uint64_t overtaken = 0;
  for (std::size_t at = 0; at < out.size(); ++at) {
    std::uint32_t later = 0;
    for (std::size_t before = at < 40 ? 0 : at - 40; before < at; ++before) {
      later += out[before] > out[at] ? 1 : 0;
    }
    most = std::max(most, later);
    overtaken += later > 0 ? 1 : 0;
  }
  CHECK(most == 5);
  // A frame is not overtaken if the frames after it were held too; the others are.
  CHECK(overtaken > read_counter(f.stage.counters().reordered) / 2);
  CHECK(overtaken <= read_counter(f.stage.counters().reordered));
  std::sort(out.begin(), out.end());
  CHECK(out == all(kFrames));
}

TEST_CASE("a reordered frame that nobody overtakes comes all the same") {
  Fixture f;
  f.stage.configure({.reorder = 1, .reorder_frames = 64});
  CHECK(f.send(1).empty());
  CHECK(f.stage.deadline() == 1'000'000 + FaultStage::kOvertakeNs);
  CHECK(f.wait(FaultStage::kOvertakeNs) == all(1));
}

TEST_CASE("what is held is bounded: more passes at once") {
  Fixture f;
  f.stage.configure({.delay = 1, .delay_us = 1'000'000});
  const auto out = f.send(FaultStage::kHeld + 10, 32);
  CHECK(out.size() == 10);
  CHECK(read_counter(f.stage.counters().passed_full) == 10);
  CHECK(read_counter(f.stage.counters().held) == FaultStage::kHeld);
  // Cleared: what was held comes when it is due, and then nothing is left.
  f.stage.configure({});
  CHECK_FALSE(f.stage.idle());
  CHECK(f.wait(1'000'000'000).size() == FaultStage::kHeld);
  CHECK(f.stage.idle());
}

TEST_CASE("everything at once loses no mbuf") {
  Fixture f;
  f.stage.configure({.seed = 3,
                     .drop = 0.1,
                     .duplicate = 0.3,
                     .reorder = 0.3,
                     .corrupt = 0.2,
                     .delay = 0.3,
                     .reorder_frames = 64,
                     .delay_us = 20});
  const std::size_t out = f.send(20'000, 32).size() + f.wait(1'000'000'000).size();
  const FaultCounters& counters = f.stage.counters();
  CHECK(out == counters.frames - counters.dropped + counters.duplicated);
  CHECK(counters.no_mbuf == 0);
}
