// SPDX-License-Identifier: BSD-3-Clause
// Two ranks in one process, each driven by a thread of its own, joined by net_ring ports.
#include "embedded/communicator.h"

#include <sys/prctl.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <ctime>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/ring_ports.h"

namespace {

using namespace gradwire;
using embedded::AllReduce;
using embedded::Communicator;

constexpr TimeNs kSecond = 1'000'000'000;
constexpr TimeNs kTimeout = 20 * kSecond;
constexpr std::uint32_t kPayload = 1024;

class Pair {
 public:
  explicit Pair(std::uint32_t eager_packets_of_b = 8)
      : name_("emb" + std::to_string(++instances())), ports_(name_) {
    REQUIRE(ports_.made());
    for (int r = 0; r < 2; ++r) {
      embedded::Config config;
      port::PortConfig port;
      port.device = r == 0 ? ports_.a() : ports_.b();
      port.ip = *wire::parse_ip(r == 0 ? "10.0.0.1" : "10.0.0.2");
      config.datapath.ports = {port};
      // net_ring ports have no address of their own: nothing to ask for.
      config.neighbors = {{*wire::parse_ip(r == 0 ? "10.0.0.2" : "10.0.0.1"), {}}};
      config.datapath.base_udp_port = 4791;
      config.datapath.max_payload_bytes = kPayload;
      config.datapath.name = name_ + (r == 0 ? "a" : "b");
      config.shard.window_packets = config.shard.transit_packets = 16;
      config.shard.eager_packets = r == 0 ? 8 : eager_packets_of_b;
      config.shard.max_chunks = 1u << 16;
      auto made = Communicator::create(config);
      INFO((made ? "" : made.error().message));
      REQUIRE(made);
      ranks_[r] = std::move(*made);
    }
    table_ = {ranks_[0]->info(), ranks_[1]->info()};
  }
  ~Pair() {
    // Each leave waits for the other's.
    both([](Communicator& rank, int) { static_cast<void>(rank.leave(5 * kSecond)); });
    ports_.drain();
    for (auto& rank : ranks_) rank.reset();
  }

  /// Runs `body` for both ranks at once, each on a thread of its own.
  template <class Body>
  void both(Body&& body) {
    std::array<std::thread, 2> threads;
    for (int r = 0; r < 2; ++r) {
      threads[r] = std::thread([&, r] { body(*ranks_[r], r); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// @return what form() said on each rank.
  std::array<std::string, 2> form() {
    std::array<std::string, 2> errors;
    both([&](Communicator& rank, int r) {
      const auto formed = rank.form({0x77, 1}, static_cast<std::uint16_t>(r), table_, kTimeout);
      if (!formed) errors[r] = formed.error().message;
    });
    return errors;
  }

  Communicator& rank(int r) { return *ranks_[r]; }
  std::vector<ipc::RankInfo>& table() { return table_; }

 private:
  static int& instances() {
    static int count = 0;
    return count;
  }
  std::string name_;
  port::RingPorts ports_;
  std::array<std::unique_ptr<Communicator>, 2> ranks_;
  std::vector<ipc::RankInfo> table_;
};

/// Integers, so that the expectation needs no rounding rule.
std::int32_t input_of(int rank, std::size_t op, std::size_t i) {
  const std::size_t mixed = (i * 2654435761u) ^ (op * 40503u);
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(mixed) *
                                   static_cast<std::uint32_t>(rank + 3));
}

TEST_CASE("two embedded ranks sum arrays of awkward sizes, in place and out of place") {
  Pair pair;
  const auto errors = pair.form();
  REQUIRE(errors[0] + errors[1] == "");
  constexpr std::size_t kPerChunk = kPayload / sizeof(std::int32_t);
  const std::vector<std::size_t> counts = {
      0, 1, 2, 31, kPerChunk - 1, kPerChunk, kPerChunk + 1, 2 * kPerChunk + 1, 12345, 1'000'003};
  std::array<std::vector<std::string>, 2> wrong;
  pair.both([&](Communicator& rank, int r) {
    for (std::size_t n = 0; n < counts.size(); ++n) {
      std::vector<std::int32_t> input(counts[n]);
      for (std::size_t i = 0; i < counts[n]; ++i) input[i] = input_of(r, n, i);
      std::vector<std::int32_t> output(counts[n], -1);
      const bool in_place = n % 2 == 1;
      void* const target = in_place ? input.data() : output.data();
      const auto done = rank.all_reduce(
          {input.data(), target, counts[n], DataType::kInt32, RedOp::kSum, 5}, kTimeout);
      if (!done) wrong[r].push_back(done.error().message);
      const auto* got = static_cast<const std::int32_t*>(target);
      for (std::size_t i = 0; i < counts[n]; ++i) {
        const auto want = static_cast<std::int32_t>(static_cast<std::uint32_t>(input_of(0, n, i)) +
                                                    static_cast<std::uint32_t>(input_of(1, n, i)));
        if (got[i] != want) {
          wrong[r].push_back("op " + std::to_string(n) + " element " + std::to_string(i));
          break;
        }
      }
    }
  });
  CHECK(wrong[0] == std::vector<std::string>());
  CHECK(wrong[1] == std::vector<std::string>());
  CHECK(pair.rank(0).counters().ops_done == counts.size());
  CHECK(std::string(pair.rank(0).backend_name()).substr(0, 3) == "cpu");
}

TEST_CASE("a rank that waits for a late one leaves the core to others, and its thread as it was") {
  Pair pair;
  const auto errors = pair.form();
  REQUIRE(errors[0] + errors[1] == "");
  const auto cpu_ns = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * kSecond + time.tv_nsec;
  };
  constexpr TimeNs kLate = kSecond;
  std::array<float, 2> data = {1, 2};
  std::string wrong;
  TimeNs used_ns = 0;
  std::atomic<bool> waited{false};
  pair.both([&](Communicator& rank, int r) {
    if (r == 1) {
      // Its own part is late; it answers what keeps it alive.
      while (!waited.load()) {
        static_cast<void>(rank.test(0));
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      if (!rank.all_reduce({&data[1], &data[1], 1, DataType::kFloat32, RedOp::kSum, 0}, kTimeout)) {
        wrong = "the late rank";
      }
      return;
    }
    const int slack_ns = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
    const auto op = rank.post({&data[0], &data[0], 1, DataType::kFloat32, RedOp::kSum, 0});
    if (!op) wrong = "post";
    const TimeNs before = cpu_ns();
    const auto early = rank.wait(1, kLate);
    used_ns = cpu_ns() - before;
    if (early || early.error().code != ErrorCode::kTimedOut) wrong = "the wait's end";
    if (prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL) != slack_ns) wrong = "the timer slack";
    waited.store(true);
    if (!rank.wait(1, kTimeout)) wrong = "the early rank";
  });
  CHECK(wrong == "");
  CHECK(data[0] == 3);
  CHECK(data[1] == 3);
  // Counted in CPU time, which no other load lengthens much: 1 % of a core is usual, without
  // optimization and with a sanitizer 3 %; a thread that spins takes all of it.
  CHECK(used_ns < kLate / 8);
}

TEST_CASE("several posted ops are done in order, and the next beyond the bound is refused") {
  Pair pair;
  const auto errors = pair.form();
  REQUIRE(errors[0] + errors[1] == "");
  constexpr std::size_t kCount = 3000;
  std::vector<std::vector<float>> memory(2 * Communicator::kMaxPosted,
                                         std::vector<float>(kCount, 1.5F));
  std::array<std::string, 2> wrong;
  pair.both([&](Communicator& rank, int r) {
    for (std::uint64_t n = 0; n < Communicator::kMaxPosted; ++n) {
      float* const data = memory[r * Communicator::kMaxPosted + n].data();
      const auto op = rank.post({data, data, kCount, DataType::kFloat32, RedOp::kSum, 0});
      if (!op || *op != n + 1) wrong[r] = "post " + std::to_string(n);
    }
    float one = 1;
    const auto beyond = rank.post({&one, &one, 1, DataType::kFloat32, RedOp::kSum, 0});
    if (beyond || beyond.error().code != ErrorCode::kBusy) wrong[r] = "beyond the bound";
    const auto waited = rank.wait(Communicator::kMaxPosted, kTimeout);
    if (!waited) wrong[r] = waited.error().message;
    if (!rank.test(Communicator::kMaxPosted)) wrong[r] = "test";
  });
  CHECK(wrong[0] == "");
  CHECK(wrong[1] == "");
  for (const auto& array : memory) {
    for (const float value : array) {
      if (value != 3.0F) FAIL("got " << value);
    }
  }
}

TEST_CASE("an op that the other rank never posts times out and says which") {
  Pair pair;
  const auto errors = pair.form();
  REQUIRE(errors[0] + errors[1] == "");
  std::vector<float> data(100, 1.0F);
  std::string error;
  pair.both([&](Communicator& rank, int r) {
    if (r == 1) {
      // Present, and late: it drives its lane and posts nothing.
      static_cast<void>(rank.wait(1, kSecond / 2));
      return;
    }
    const auto done = rank.all_reduce(
        {data.data(), data.data(), data.size(), DataType::kFloat32, RedOp::kSum, 0}, kSecond / 4);
    REQUIRE(!done);
    CHECK(done.error().code == ErrorCode::kTimedOut);
    error = done.error().message;
  });
  CHECK(error.find("op 1") != std::string::npos);
}

TEST_CASE("ranks that call different things both hear of both values") {
  Pair pair;
  const auto errors = pair.form();
  REQUIRE(errors[0] + errors[1] == "");
  std::array<std::string, 2> said;
  pair.both([&](Communicator& rank, int r) {
    std::vector<float> data(1000, 1.0F);
    const auto done = rank.all_reduce({data.data(), data.data(), 1000u - static_cast<unsigned>(r),
                                       DataType::kFloat32, RedOp::kSum, 0},
                                      kTimeout);
    said[r] = done ? "done" : done.error().message;
  });
  for (const std::string& text : said) {
    INFO(text);
    CHECK(text.find("1000") != std::string::npos);
    CHECK(text.find("999") != std::string::npos);
  }
}

TEST_CASE("what cannot be is refused by name and changes nothing") {
  Pair pair;
  std::vector<float> data(100, 1.0F);
  const AllReduce good{data.data(), data.data(), data.size(), DataType::kFloat32, RedOp::kSum, 0};
  const auto code = [](const auto& result) {
    return result ? ErrorCode::kOk : result.error().code;
  };
  CHECK(code(pair.rank(0).post(good)) == ErrorCode::kInvalidArgument);  // not formed
  const auto errors = pair.form();
  REQUIRE(errors[0] + errors[1] == "");
  CHECK(code(pair.rank(0).form({0x78, 1}, 0, pair.table(), kSecond)) ==
        ErrorCode::kInvalidArgument);
  AllReduce bad = good;
  bad.output = data.data() + 1;
  CHECK(code(pair.rank(0).post(bad)) == ErrorCode::kInvalidArgument);
  bad = good;
  bad.input = nullptr;
  CHECK(code(pair.rank(0).post(bad)) == ErrorCode::kInvalidArgument);
  bad = good;
  bad.datatype = static_cast<DataType>(99);
  CHECK(code(pair.rank(0).post(bad)) == ErrorCode::kInvalidArgument);
  bad = good;
  bad.count = std::uint64_t{1} << 40;
  bad.output = static_cast<void*>(nullptr);
  CHECK(code(pair.rank(0).post(bad)) == ErrorCode::kInvalidArgument);
  bad.output = data.data();
  CHECK(code(pair.rank(0).post(bad)) == ErrorCode::kInvalidArgument);  // more chunks than allowed
  std::array<std::string, 2> wrong;
  pair.both([&](Communicator& rank, int r) {
    std::vector<float> one(1, 1.0F);
    const auto done =
        rank.all_reduce({one.data(), one.data(), 1, DataType::kFloat32, RedOp::kSum, 0}, kTimeout);
    wrong[r] = !done ? done.error().message : one[0] != 2.0F ? "sum" : "";
  });
  CHECK(wrong[0] == "");
  CHECK(wrong[1] == "");
}

TEST_CASE("an op may not touch what an unfinished one writes, nor write what it reads") {
  Pair pair;
  const auto errors = pair.form();
  REQUIRE(errors[0] + errors[1] == "");
  constexpr std::size_t kCount = 2'000;
  std::array<std::string, 2> wrong;
  pair.both([&](Communicator& rank, int r) {
    std::vector<float> data(4 * kCount, 1.0F);
    float* const at = data.data();
    const auto op = [&](const float* input, float* output) {
      return AllReduce{input, output, kCount, DataType::kFloat32, RedOp::kSum, 0};
    };
    const auto refused = [&](const AllReduce& bad) {
      const auto posted = rank.post(bad);
      return !posted && posted.error().code == ErrorCode::kInvalidArgument &&
             posted.error().message.find("op 1,") != std::string::npos;
    };
    if (!rank.post(op(at, at + kCount))) wrong[r] += "the first; ";
    if (!refused(op(at + 3 * kCount, at + 2 * kCount - 1))) wrong[r] += "writes its output; ";
    if (!refused(op(at + 2 * kCount, at + kCount - 1))) wrong[r] += "writes its input; ";
    if (!refused(op(at + kCount, at + 3 * kCount))) wrong[r] += "reads its output; ";
    // Both only read the first quarter.
    if (!rank.post(op(at, at + 2 * kCount))) wrong[r] += "a shared input; ";
    if (const auto done = rank.wait(2, kTimeout); !done) wrong[r] += done.error().message;
    if (!rank.all_reduce(op(at + kCount, at + 3 * kCount), kTimeout)) wrong[r] += "afterwards; ";
    if (data[kCount] != 2 || data[2 * kCount] != 2 || data[3 * kCount] != 4) wrong[r] += "sums; ";
  });
  CHECK(wrong[0] == "");
  CHECK(wrong[1] == "");
}

TEST_CASE("a table that does not fit is refused before anyone waits") {
  Pair pair(4);  // another eager allowance
  const auto errors = pair.form();
  CHECK(errors[0].find("transport.eager_packets is 4 at rank 1") != std::string::npos);
  CHECK(errors[1].find("transport.eager_packets is 4 at rank 1") != std::string::npos);
}

}  // namespace
