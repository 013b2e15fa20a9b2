// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/gpu/gpu_backend.h"

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "chunks.h"
#include "emulated.h"
#include "in_order_cases.h"
#include "registered.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;

void check_cases(Emulated& gpu, DataType type, RedOp redop, std::size_t every) {
  Registered registered(*gpu.device);
  std::size_t index = 0;
  for_each_case(type, redop, [&](const Case& c, std::mt19937_64& random) {
    if (index++ % (every * one_case_in()) != 0) return;
    const World before(c, random);
    World expected = before;
    expect(c, expected);
    const std::string wrong = run(c, *gpu.backend, before, expected, registered);
    if (!wrong.empty()) FAIL(wrong);
  });
}

TEST_CASE("the emulated GPU gives the reference's bits for every kind, count and member count") {
  Emulated gpu;
  CHECK(std::string(gpu.backend->name()) == "emu");
  CHECK(std::string(gpu.backend->path()) == "mapped");
  for (const DataType type : kDataTypes) {
    for (const RedOp redop : kRedOps) check_cases(gpu, type, redop, 2);
  }
}

TEST_CASE("every way to the GPU and back, and both kinds of kernels, give the same bits") {
  struct Way {
    const char* arguments;
    Staging staging;
    KernelMode kernel;
    const char* path;
  };
  const Way way =
      GENERATE(Way{"cpu_map=0", Staging::kCopy, KernelMode::kLaunch, "copy by copy engine"},
               Way{"", Staging::kCopy, KernelMode::kLaunch, "copy by CPU mapping"},
               Way{"", Staging::kCopy, KernelMode::kPersistent, "copy by CPU mapping"},
               Way{"", Staging::kMapped, KernelMode::kPersistent, "mapped"});
  Emulated gpu(way.arguments, way.staging, way.kernel);
  CHECK(std::string(gpu.backend->path()) == way.path);
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16, DataType::kInt8}) {
    for (const RedOp redop : {RedOp::kAvg, RedOp::kMax}) check_cases(gpu, type, redop, 7);
  }
}

TEST_CASE("the emulated GPU folds in order with the ring's bits") {
  const auto kernel = GENERATE(KernelMode::kLaunch, KernelMode::kPersistent);
  const auto staging = GENERATE(Staging::kMapped, Staging::kCopy);
  Emulated gpu("", staging, kernel);
  CHECK(gpu.backend->sources_max() == Batch::kSourcesMax);
  Registered registered(*gpu.device);
  std::size_t index = 0;
  for (const DataType type : kDataTypes) {
    for (const RedOp redop : kRedOps) {
      for_each_order_case(type, redop, [&](const OrderCase& c, std::mt19937_64& random) {
        if (++index % (5 * one_case_in()) != 0) return;
        const std::string wrong = run(c, *gpu.backend, random, registered);
        if (!wrong.empty()) FAIL(wrong);
      });
    }
  }
  std::mt19937_64 random(1);
  const OrderCase most{DataType::kFloat16,
                       RedOp::kSum,
                       Batch::kSourcesMax,
                       1,
                       true,
                       100,
                       0,
                       false,
                       kMaxMembers,
                       true,
                       false};
  CHECK(run(most, *gpu.backend, random, registered) == "");
  OrderCase more = most;
  more.ranks = Batch::kSourcesMax + 1;
  CHECK_THAT(run(more, *gpu.backend, random, registered), Catch::EndsWith("failed"));
}

/// CRC32C bit by bit, as RFC 3720 defines it.
std::uint32_t crc32c_of(const std::byte* bytes, std::size_t count) {
  std::uint32_t state = ~0u;
  for (std::size_t i = 0; i < count; ++i) {
    state ^= static_cast<std::uint32_t>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~state;
}

Completion await(GpuBackend& backend) {
  std::array<Completion, 4> done;
  for (int i = 0; i < 5'000; ++i) {
    if (backend.poll(done) == 1) return done[0];
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FAIL("no completion");
  return {};
}

TEST_CASE("the GPU makes CRCs of packets: of what it reads, and of what it has written") {
  Emulated gpu("", GENERATE(Staging::kMapped, Staging::kCopy),
               GENERATE(KernelMode::kLaunch, KernelMode::kPersistent));
  constexpr std::size_t kRoom = 20'000;
  std::vector<std::byte> packet(kRoom + 16);
  std::vector<std::byte> input(kRoom);
  std::vector<std::byte> output(kRoom);
  std::mt19937 random(5);
  for (auto* bytes : {&packet, &input}) {
    for (std::byte& byte : *bytes) byte = static_cast<std::byte>(random());
  }
  // The check value of RFC 3720's polynomial.
  CHECK(crc32c_of(reinterpret_cast<const std::byte*>("123456789"), 9) == 0xe3069283u);
  REQUIRE(gpu.device->register_host(packet.data(), packet.size(), "packet"));
  REQUIRE(gpu.device->register_host(input.data(), input.size(), "input"));
  REQUIRE(gpu.device->register_host(output.data(), output.size(), "output"));
  const std::byte* inputs[] = {input.data()};
  std::byte* outputs[] = {output.data()};
  for (const std::uint32_t count :
       {1u, 3u, 31u, 32u, 33u, 4'095u, 4'096u, 4'128u, 8'999u, 19'999u}) {
    for (const std::size_t offset : {0u, 1u}) {
      for (const Kind kind :
           {Kind::kCheck, Kind::kLoad, Kind::kReduceInPacket, Kind::kReduceToOutput}) {
        const std::uint64_t bytes_before = gpu.backend->counters().bytes;
        Entry entry;
        entry.kind = kind;
        entry.datatype = DataType::kUint8;
        entry.count = count;
        entry.packet = packet.data() + offset;
        entry.inputs = inputs;
        entry.outputs = outputs;
        entry.crc = true;
        const std::vector<std::byte> before = packet;
        REQUIRE(gpu.backend->submit({&entry, 1}) == 1);
        const Completion done = await(*gpu.backend);
        INFO("kind " << static_cast<int>(kind) << ", " << count << " bytes at " << offset);
        CHECK(done.ok);
        CHECK(done.crc == crc32c_of(packet.data() + offset, count));
        CHECK((packet == before) == (kind == Kind::kCheck || kind == Kind::kReduceToOutput));
        CHECK(gpu.backend->counters().bytes - bytes_before == (kind == Kind::kCheck ? 0 : count));
      }
    }
  }
  CHECK(gpu.backend->counters().chunks_reduced == 40);
  CHECK(gpu.backend->counters().chunks_moved == 20);
  gpu.device->unregister_host(packet.data());
  gpu.device->unregister_host(input.data());
  gpu.device->unregister_host(output.data());
}

TEST_CASE("the CPU backend refuses to make CRCs") {
  const auto cpu = make_cpu_backend(4);
  std::array<std::byte, 8> packet{};
  Entry entry;
  entry.kind = Kind::kCheck;
  entry.datatype = DataType::kUint8;
  entry.count = 8;
  entry.packet = packet.data();
  entry.crc = true;
  REQUIRE(cpu->submit({&entry, 1}) == 1);
  std::array<Completion, 1> done;
  REQUIRE(cpu->poll(done) == 1);
  CHECK_FALSE(done[0].ok);
}

TEST_CASE("a late GPU takes what it has room for, never blocks, and loses nothing") {
  const auto kernel = GENERATE(KernelMode::kLaunch, KernelMode::kPersistent);
  Emulated gpu("delay_us=3000", Staging::kMapped, kernel);
  Chunks chunks(*gpu.device, 2'000);
  const std::size_t taken = gpu.backend->submit(chunks.entries);
  CHECK(taken > 0);
  CHECK(taken < 2'000);  // back-pressure: the slots are full
  std::vector<Completion> all;
  const auto rest = std::span<const Entry>(chunks.entries).subspan(taken);
  CHECK(submit_all(*gpu.backend, rest, all) > 0);
  const auto tail = collect(*gpu.backend, 2'000 - all.size());
  all.insert(all.end(), tail.begin(), tail.end());
  REQUIRE(all.size() == 2'000);
  std::set<std::uint64_t> cookies;
  for (const Completion& completion : all) {
    CHECK(completion.ok);
    cookies.insert(completion.cookie);
  }
  CHECK(cookies.size() == 2'000);
  for (std::size_t i = 0; i < 2'000; ++i) CHECK(chunks.reduced(i));
  CHECK(gpu.backend->counters().chunks_reduced == 2'000);
  CHECK(gpu.backend->counters().bytes == 2'000 * 4 * Chunks::kFloats);
}

TEST_CASE("batches that finish in another order complete in that order") {
  Emulated gpu("reorder=8,delay_us=5000");
  Chunks chunks(*gpu.device, 300);
  std::vector<Completion> all;
  submit_all(*gpu.backend, chunks.entries, all);
  const auto tail = collect(*gpu.backend, 300 - all.size());
  all.insert(all.end(), tail.begin(), tail.end());
  REQUIRE(all.size() == 300);
  bool out_of_order = false;
  for (std::size_t i = 1; i < all.size(); ++i) {
    out_of_order |= all[i].cookie < all[i - 1].cookie;
    CHECK(all[i].ok);
  }
  CHECK(out_of_order);
  for (std::size_t i = 0; i < 300; ++i) CHECK(chunks.reduced(i));
}

TEST_CASE("a failed batch fails its own entries and no others, and counts nothing") {
  const auto kernel = GENERATE(KernelMode::kLaunch, KernelMode::kPersistent);
  Emulated gpu("fail_every=3", Staging::kMapped, kernel);
  Chunks chunks(*gpu.device, 9 * 32);
  std::vector<Completion> all;
  submit_all(*gpu.backend, chunks.entries, all);
  const auto tail = collect(*gpu.backend, 9 * 32 - all.size());
  all.insert(all.end(), tail.begin(), tail.end());
  REQUIRE(all.size() == 9 * 32);
  std::size_t failed = 0;
  for (const Completion& completion : all) {
    CHECK(chunks.reduced(completion.cookie) == completion.ok);
    failed += completion.ok ? 0 : 1;
  }
  CHECK(failed == 3 * 32);
  CHECK(gpu.backend->counters().chunks_reduced == 6 * 32);
}

TEST_CASE("what is not registered faults the batch, as it would on a GPU") {
  Emulated gpu;
  Chunks chunks(*gpu.device, 1);
  float stranger[Chunks::kFloats] = {};
  chunks.bases[0] = reinterpret_cast<const std::byte*>(stranger);
  REQUIRE(gpu.backend->submit(chunks.entries) == 1);
  const auto done = collect(*gpu.backend, 1);
  REQUIRE(done.size() == 1);
  CHECK_FALSE(done[0].ok);
}

TEST_CASE("while a GPU has two batches, only full ones follow, and others when one has ended") {
  Emulated gpu("delay_us=1000000");  // none ends before all are submitted
  Chunks chunks(*gpu.device, 36);
  const std::span<const Entry> entries(chunks.entries);
  CHECK(gpu.backend->submit(entries.first(1)) == 1);
  CHECK(gpu.backend->submit(entries.subspan(1, 1)) == 1);
  CHECK(gpu.backend->submit(entries.subspan(2, 1)) == 0);
  CHECK(gpu.backend->submit(entries.subspan(2, 32)) == 32);
  CHECK(collect(*gpu.backend, 34).size() == 34);
  CHECK(gpu.backend->submit(entries.subspan(34, 2)) == 2);
  CHECK(collect(*gpu.backend, 2).size() == 2);
  for (std::size_t i = 0; i < 36; ++i) CHECK(chunks.reduced(i));
  CHECK(gpu.backend->counters().batches == 4);
}

TEST_CASE("a group that fills its part of a hanging GPU leaves the others theirs") {
  Emulated gpu("hang_after=1,hang_ms=4000");
  GpuBackend other(*gpu.queue);
  Chunks chunks(*gpu.device, 2'000);
  const std::size_t hogged = gpu.backend->submit(chunks.entries);
  CHECK(hogged == kQueueSlots / 2 * Batch::kItems);
  Chunks own(*gpu.device, 40);
  CHECK(other.submit(own.entries) == 40);  // at once, though the GPU hangs
  std::array<Completion, 64> done;
  const auto start = std::chrono::steady_clock::now();
  static_cast<void>(other.poll(done));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(3'000));
  CHECK(collect(other, 40).size() == 40);
  CHECK(collect(*gpu.backend, hogged).size() == hogged);
}

TEST_CASE("more groups than the GPU's queue has slots all get their sums") {
  Emulated gpu("");
  std::vector<std::unique_ptr<GpuBackend>> groups;
  std::vector<std::unique_ptr<Chunks>> chunks;
  for (std::uint32_t i = 0; i < 3 * kQueueSlots; ++i) {
    groups.push_back(std::make_unique<GpuBackend>(*gpu.queue));
    chunks.push_back(std::make_unique<Chunks>(*gpu.device, Batch::kItems));
  }
  CHECK(gpu.queue->quota() == 1);
  // All slots are taken before any batch is looked at.
  std::vector<std::size_t> left(groups.size(), Batch::kItems);
  std::size_t waiting = 0;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    left[i] -= groups[i]->submit(chunks[i]->entries);
    waiting += left[i] > 0 ? 1 : 0;
  }
  CHECK(waiting == 2 * kQueueSlots);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::vector<Completion> done;
    const std::span<const Entry> entries(chunks[i]->entries);
    submit_all(*groups[i], entries.subspan(entries.size() - left[i]), done);
    const auto rest = collect(*groups[i], entries.size() - done.size());
    CHECK(done.size() + rest.size() == entries.size());
    for (std::size_t chunk = 0; chunk < entries.size(); ++chunk) CHECK(chunks[i]->reduced(chunk));
  }
}

TEST_CASE("whoever waits for a kernel that hangs gets an answer") {
  const auto kernel = GENERATE(KernelMode::kLaunch, KernelMode::kPersistent);
  Emulated gpu("hang_after=1,hang_ms=2000", Staging::kMapped, kernel);
  Chunks chunks(*gpu.device, 1);
  REQUIRE(gpu.backend->submit(chunks.entries) == 1);
  CHECK_FALSE(gpu.queue->executor().stop(1'000'000));
  CHECK(gpu.queue->executor().stop(60'000'000'000));
}

TEST_CASE("entries out of their bounds fail between good ones") {
  Emulated gpu;
  Chunks chunks(*gpu.device, 5);
  chunks.entries[0].count = 0;
  chunks.entries[2].inputs = nullptr;
  chunks.entries[4].divisor = 0;
  REQUIRE(gpu.backend->submit(chunks.entries) == 5);
  const auto done = collect(*gpu.backend, 5);
  REQUIRE(done.size() == 5);
  for (const Completion& completion : done) {
    CHECK(completion.ok == (completion.cookie % 2 == 1));
    CHECK(chunks.reduced(completion.cookie) == completion.ok);
  }
}

TEST_CASE("a backend that goes while its batches are out leaves the queue to others") {
  Emulated gpu("delay_us=20000");
  Chunks chunks(*gpu.device, 64);
  {
    GpuBackend leaving(*gpu.queue);
    REQUIRE(leaving.submit(chunks.entries) == 64);
  }
  Chunks own(*gpu.device, 32);
  REQUIRE(gpu.backend->submit(own.entries) == 32);
  CHECK(collect(*gpu.backend, 32).size() == 32);
  CHECK(gpu.queue->quota() == kQueueSlots);
}

}  // namespace
