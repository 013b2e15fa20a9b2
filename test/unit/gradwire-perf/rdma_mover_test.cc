// SPDX-License-Identifier: BSD-3-Clause
// The ring of transport rdma over a network of this process, a thread for each rank: bytes are read
// from the sender's memory as late as possible, and a receive queue that overflows is seen.
#include <algorithm>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "exchange_op.h"
#include "pattern.h"
#include "rdma/rdma_link.h"
#include "rdma/rdma_mover.h"
#include "ring_op.h"
#include "sim/reference/ring_reference.h"

using namespace gradwire;
using namespace gradwire::perf;

namespace {

constexpr std::uint32_t kChunk = 64;

struct Message {
  RdmaWrite write;
  bool is_word = false;
  std::vector<std::byte> copy;  ///< of an inline write
};

/// All ranks' memory and what is under way between them.
struct Network {
  explicit Network(std::uint16_t ranks) : nranks(ranks), memory(ranks), gone(ranks) {
    for (auto& queues : sent) queues.resize(ranks);
    for (auto& counts : completed) counts.resize(ranks);
  }
  std::uint16_t nranks;
  std::vector<std::vector<std::byte>> memory;
  std::vector<char> gone;
  std::array<std::vector<std::deque<Message>>, 2> sent;  // by end and sender
  std::array<std::vector<std::uint32_t>, 2> completed;   // likewise
  std::size_t most_under_way = 0;
  std::uint16_t through = 0;  ///< ranks that have done all their ops
  std::mutex mutex;
  std::condition_variable changed;
};

class FakeWire final : public RdmaWire {
 public:
  FakeWire(Network& network, std::uint16_t rank, std::size_t inline_bytes)
      : network_(network), rank_(rank), inline_bytes_(inline_bytes), random_(rank) {}

  Result<void> write(RdmaEnd end, const RdmaWrite& write) override {
    Message message{write, false, {}};
    if (write.bytes.size() <= inline_bytes_) {
      message.copy.assign(write.bytes.begin(), write.bytes.end());
    }
    return post(end, std::move(message));
  }
  Result<void> tell(RdmaEnd end, std::uint32_t word) override {
    return post(end, {{{}, 0, word}, true, {}});
  }
  std::size_t inline_bytes() const noexcept override { return inline_bytes_; }
  void sleep() override {
    std::unique_lock lock(network_.mutex);
    wait(lock, [&] { return has_something(); });
  }
  /// A device acknowledges by itself; here whoever receives does, until all ranks are through.
  void serve_until_all_are_through() {
    std::unique_lock lock(network_.mutex);
    ++network_.through;
    network_.changed.notify_all();
    while (network_.through < network_.nranks) {
      wait(lock, [&] { return has_something() || network_.through == network_.nranks; });
      lock.unlock();
      std::array<RdmaEvent, 16> events;
      (void)poll(events);
      lock.lock();
    }
  }
  Result<void> look_after_neighbors() override { return {}; }

  Result<std::size_t> poll(std::span<RdmaEvent> events) override {
    const std::scoped_lock lock(network_.mutex);
    std::size_t count = 0;
    for (const RdmaEnd end : {RdmaEnd::kDownstream, RdmaEnd::kUpstream}) {
      auto& completed = network_.completed[index(end)][rank_];
      for (; completed > 0 && count < events.size(); --completed) events[count++] = {.end = end};
      const auto [peer, peer_end] = other_side(end);
      auto& coming = network_.sent[index(peer_end)][peer];
      // A network that delivers when it likes.
      while (!coming.empty() && count < events.size() && random_() % 3 != 0) {
        const Message& message = coming.front();
        const auto bytes = message.copy.empty() ? message.write.bytes : message.copy;
        std::copy(
            bytes.begin(), bytes.end(),
            network_.memory[rank_].begin() + static_cast<std::ptrdiff_t>(message.write.offset));
        events[count++] = {message.is_word ? RdmaEvent::Kind::kTold : RdmaEvent::Kind::kArrived,
                           end, static_cast<std::uint32_t>(bytes.size()), message.write.immediate};
        ++network_.completed[index(peer_end)][peer];
        coming.pop_front();
        network_.changed.notify_all();
      }
      if (network_.nranks == 2) break;
    }
    return count;
  }

 private:
  static std::size_t index(RdmaEnd end) { return static_cast<std::size_t>(end); }
  std::pair<std::uint16_t, RdmaEnd> other_side(RdmaEnd end) const {
    const auto n = network_.nranks;
    if (n == 2) return {static_cast<std::uint16_t>(1 - rank_), RdmaEnd::kDownstream};
    if (end == RdmaEnd::kDownstream) {
      return {static_cast<std::uint16_t>((rank_ + 1) % n), RdmaEnd::kUpstream};
    }
    return {static_cast<std::uint16_t>((rank_ + n - 1) % n), RdmaEnd::kDownstream};
  }
  Result<void> post(RdmaEnd end, Message message) {
    const std::scoped_lock lock(network_.mutex);
    auto& queue = network_.sent[index(end)][rank_];
    queue.push_back(std::move(message));
    network_.most_under_way = std::max(network_.most_under_way, queue.size());
    network_.changed.notify_all();
    return {};
  }
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, Condition condition) {
    network_.changed.wait_for(lock, std::chrono::milliseconds(kSleepMs), condition);
  }
  bool has_something() const {
    for (const RdmaEnd end : {RdmaEnd::kDownstream, RdmaEnd::kUpstream}) {
      const auto [peer, peer_end] = other_side(end);
      if (network_.completed[index(end)][rank_] > 0) return true;
      if (!network_.sent[index(peer_end)][peer].empty()) return true;
      if (network_.nranks == 2) break;
    }
    return false;
  }

  Network& network_;
  const std::uint16_t rank_;
  const std::size_t inline_bytes_;
  std::mt19937 random_;
};

struct RdmaWorld {
  std::uint16_t nranks = 2;
  std::vector<std::uint64_t> counts;  ///< of the ops, one after the other
  std::uint64_t exchange_up_to = 0;   ///< elements
  std::uint32_t depth = 4;
  std::size_t inline_bytes = 0;
  bool in_place = false;
};

/// Runs the ops on all ranks and compares every byte with the reference.
void check_world(const RdmaWorld& world) {
  const std::uint64_t most = *std::max_element(world.counts.begin(), world.counts.end());
  const std::size_t slots = std::size_t{world.depth} * kChunk;
  const std::size_t gathered = world.nranks * world.exchange_up_to * sizeof(float);
  const std::size_t room = most * sizeof(float);
  Network network(world.nranks);
  for (auto& memory : network.memory) memory.resize(slots + 2 * gathered + 2 * room);
  std::vector<std::string> mistakes(world.nranks);
  std::vector<std::thread> threads;
  for (std::uint16_t rank = 0; rank < world.nranks; ++rank) {
    threads.emplace_back([&, rank] {
      FakeWire wire(network, rank, world.inline_bytes);
      const std::span<std::byte> memory = network.memory[rank];
      RdmaMover mover(wire, {1, rank, world.nranks, memory, 0, kChunk, world.depth}, {false, 10});
      Folder folder;
      std::byte* const input = memory.data() + slots + 2 * gathered;
      std::byte* const output = world.in_place ? input : input + room;
      std::uint64_t seed = 0;
      for (const std::uint64_t count : world.counts) {
        ++seed;
        fill_pattern(DataType::kFloat32, RedOp::kSum, rank, seed, 0, count, input);
        if (!world.in_place) std::memset(output, 0xa5, room);
        const OpSpec spec{rank,        world.nranks, count, DataType::kFloat32,
                          RedOp::kSum, input,        output};
        Result<void> ran;
        if (count <= world.exchange_up_to) {
          ExchangeOp op(spec, memory.subspan(slots + mover.op_seq() % 2 * gathered, gathered),
                        folder);
          ran = mover.run(op);
        } else {
          RingOp op(spec, {kChunk, 2}, {}, folder);
          ran = mover.run(op);
        }
        Options options;
        options.rank = rank;
        options.nranks = world.nranks;
        const std::uint64_t wrong = ran ? count_wrong(options, seed, count, output) : 0;
        if (!ran || wrong > 0) {
          mistakes[rank] = ran ? std::to_string(wrong) + " wrong of " + std::to_string(count)
                               : ran.error().message;
          break;
        }
      }
      if (auto flushed = mover.flush(); !flushed) mistakes[rank] = flushed.error().message;
      wire.serve_until_all_are_through();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& mistake : mistakes) CHECK(mistake == "");
  CHECK(network.most_under_way <= world.depth + kRdmaWords);
}

}  // namespace

TEST_CASE("an RDMA ring gives the reference's bits, whatever the network delays", "[rdma]") {
  for (const std::uint16_t nranks : {2, 3, 5}) {
    for (const std::uint32_t depth : {2u, 3u, 16u}) {
      for (const bool in_place : {false, true}) {
        CAPTURE(nranks, depth, in_place);
        check_world({nranks, {1, 16, 100, 1000, 17, 5, 3000, 2}, 0, depth, 0, in_place});
        check_world({nranks, {1, 16, 100, 1000, 17, 5, 3000, 2}, 20, depth, 32, in_place});
      }
    }
  }
}

TEST_CASE("an RDMA op that does not end says who has not sent what", "[rdma]") {
  Network network(2);
  network.memory[0].resize(1024);
  FakeWire wire(network, 0, 0);
  RdmaMover mover(wire, {1, 0, 2, network.memory[0], 0, kChunk, 2}, {true, 0.05});
  Folder folder;
  std::byte* const input = network.memory[0].data() + 256;
  RingOp op({0, 2, 40, DataType::kFloat32, RedOp::kSum, input, input + 256}, {kChunk, 1}, {},
            folder);
  const auto ran = mover.run(op);
  REQUIRE(!ran);
  CHECK(ran.error().code == ErrorCode::kTimedOut);
  CHECK(ran.error().message.find("op 0 did not end on rank 0 within 0.05 s: chunk ") == 0);
  CHECK(ran.error().message.find("has not come from rank 1") != std::string::npos);
}

TEST_CASE("ends of an RDMA connection that differ are named", "[rdma]") {
  RdmaEndInfo own, other;
  CHECK(check_ends(own, other, 0, 1));
  other.lag = 3;
  const auto alike = check_ends(own, other, 0, 1);
  REQUIRE(!alike);
  CHECK(alike.error().message ==
        "--rdma-lag is 0 on rank 0 and 3 on rank 1: give all ranks the same");
}

TEST_CASE("without a device transport rdma says so", "[rdma]") {
  std::vector<std::byte> memory(4096);
  RdmaLinkOptions options;
  options.memory = memory;
  options.rdma.device = "no-such-device";
  options.rdma.address = "192.0.2.1";
  const auto link = make_rdma_link(options);
  REQUIRE(!link);
  CHECK((link.error().message.find("RDMA device") != std::string::npos ||
         link.error().message.find("libibverbs") != std::string::npos));
}
