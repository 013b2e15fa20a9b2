// SPDX-License-Identifier: BSD-3-Clause
// The CUDA executor, the driver gpu_cuda and the tests' libcuda.so.1 with the kernels' PTX: random
// batches in which every byte about an array is out of bounds, what the executor asks of CUDA, and
// what it does if a kernel hangs or faults.
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <memory>

#include "batches.h"
#include "fake_cuda_control.h"
#include "gpu.h"
#include "reduce/gpu/device.h"
#include "reduce/gpu/gpu_backend.h"
#include "registered.h"
#include "support/plugged_gpu.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;
using ptx::Gpu;

/// A variable of the environment while the object lives; nullptr: as it is.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(value == nullptr ? nullptr : name) {
    if (name_ != nullptr) ::setenv(name_, value, 1);
  }
  ~Setting() {
    if (name_ != nullptr) ::unsetenv(name_);
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  const char* name_;
};

struct Way {
  Staging staging;
  KernelMode kernel;
  bool mapping;  ///< GDRCopy is there
  const char* path;
};
constexpr Way kWays[] = {
    {Staging::kMapped, KernelMode::kLaunch, true, "mapped"},
    {Staging::kCopy, KernelMode::kLaunch, true, "copy by CPU mapping"},
    {Staging::kCopy, KernelMode::kLaunch, false, "copy by copy engine"},
    {Staging::kGpuDirect, KernelMode::kLaunch, true, "gpudirect"},
    {Staging::kMapped, KernelMode::kPersistent, true, "mapped"},
    {Staging::kCopy, KernelMode::kPersistent, true, "copy by CPU mapping"},
};

GpuOptions options_of(const Way& way) {
  GpuOptions options;
  options.device = "gpu_cuda5";
  options.staging = way.staging;
  options.kernel = way.kernel;
  options.persistent_sms = 3;
  options.why_no_gpudirect = "";  // as if each port put payloads there
  return options;
}

/// A device, a queue and a backend.
struct Stand {
  explicit Stand(const Way& way)
      : gdrcopy("GRADWIRE_FAKE_GDRCOPY", way.mapping ? nullptr : "0"),
        plugged("gpu_cuda5", "id=0") {
    REQUIRE(plugged.result() == 0);
    auto opened = GpuDevice::open(options_of(way));
    INFO((opened ? "" : opened.error().message));
    REQUIRE(opened);
    device = std::move(*opened);
    auto made = GpuQueue::create(*device, 32'768);
    INFO((made ? "" : made.error().message));
    REQUIRE(made);
    queue = std::move(*made);
    backend = std::make_unique<GpuBackend>(*queue);
    CHECK(backend->path() == std::string(way.path));
  }
  ~Stand() {
    backend.reset();
    queue.reset();
    device.reset();
  }
  const Setting gdrcopy;
  const PluggedGpu plugged;
  std::unique_ptr<GpuDevice> device;
  std::unique_ptr<GpuQueue> queue;
  std::unique_ptr<GpuBackend> backend;
};

/// Registers an array, and forbids what is about it.
struct ToTheByte final : Reach {
  explicit ToTheByte(GpuDevice& device) : registered(device) {}
  void add(Array& array) override {
    registered.add(array);
    Gpu::get().forbid(array.storage.data(), array.start);
    Gpu::get().forbid(array.data() + array.bytes, array.storage.size() - array.start - array.bytes);
  }
  void remove(Array& array) override {
    Gpu::get().allow(array.storage.data());
    Gpu::get().allow(array.data() + array.bytes);
    registered.remove(array);
  }
  bool asynchronous() const override { return true; }
  Registered registered;
};

std::uint64_t flushes() { return fake_cuda_function<std::uint64_t()>("fake_cuda_flushes")(); }

/// One sum of fp32, awaited.
bool sums(Stand& stand) {
  std::mt19937_64 random(1);
  ToTheByte reach(*stand.device);
  const Case c{
      DataType::kFloat32, RedOp::kSum, Kind::kReduceInPacket, 1, 1000, 0, false, false, false, 1};
  return ptx::check_batch({c, c, c}, *stand.backend, reach, random).empty();
}

/// How many batches a test takes: GRADWIRE_PTX_BATCHES, for runs by hand and longer suites.
std::uint64_t batches() {
  const char* const text = std::getenv("GRADWIRE_PTX_BATCHES");
  return text == nullptr ? 8 : std::strtoull(text, nullptr, 10);
}

TEST_CASE("random batches by every way touch nothing else, and give the packets' CRCs") {
  const Way way = GENERATE(from_range(std::begin(kWays), std::end(kWays)));
  Stand stand(way);
  ToTheByte reach(*stand.device);
  for (std::uint64_t seed = 0; seed < batches(); ++seed) {
    std::mt19937_64 random(seed);
    const auto cases = ptx::random_cases(1 + random() % 24, seed % 2 == 0, random);
    const auto folds = ptx::random_folds(seed % 2 == 0 ? 0 : 1 + random() % 3, random);
    INFO(way.path << ", " << name_of(way.kernel) << ", seed " << seed);
    CHECK(ptx::check_batch(cases, *stand.backend, reach, random, folds) == "");
  }
  CHECK(stand.backend->counters().bytes > 0);
}

TEST_CASE("a persistent kernel takes every block that its multiprocessors hold") {
  Stand stand(kWays[4]);
  REQUIRE(sums(stand));
  CHECK(Gpu::get().calls().launched.cooperative);
  CHECK(Gpu::get().calls().launched.blocks == 3 * 2);
  CHECK(Gpu::get().calls().launched.threads == kThreadsPerBlock);
}

TEST_CASE("the copy engine is asked once for all packets of a batch") {
  Stand stand(kWays[2]);
  const std::uint64_t before = Gpu::get().calls().copies;
  REQUIRE(sums(stand));  // three packets
  CHECK(Gpu::get().calls().copies == before + 1);
}

TEST_CASE("a round asks CUDA about two batches, however many run") {
  Stand stand(kWays[0]);
  std::vector<std::vector<float>> packets(kQueueSlots, std::vector<float>(4'096, 1.0f));
  std::vector<float> input(100, 2.0f);
  const auto* base = reinterpret_cast<const std::byte*>(input.data());
  REQUIRE(stand.device->register_host(input.data(), input.size() * sizeof(float), "input"));
  Gpu::get().hold(true);
  for (auto& packet : packets) {
    REQUIRE(stand.device->register_host(packet.data(), packet.size() * sizeof(float), "packet"));
    // Full ones, which do not wait for others to end.
    std::array<Entry, Batch::kItems> entries;
    for (std::size_t e = 0; e < entries.size(); ++e) {
      entries[e].kind = Kind::kReduceInPacket;
      entries[e].count = 100;
      entries[e].packet = reinterpret_cast<std::byte*>(packet.data() + 128 * e);
      entries[e].inputs = &base;
    }
    REQUIRE(stand.backend->submit(entries) == entries.size());
  }
  Completion done;
  const std::uint64_t before = Gpu::get().calls().questions;
  for (int round = 0; round < 5; ++round) CHECK(stand.backend->poll({&done, 1}) == 0);
  CHECK(Gpu::get().calls().questions - before == 5 * 2);
  Gpu::get().hold(false);
  for (std::size_t finished = 0; finished < packets.size() * Batch::kItems;) {
    finished += stand.backend->poll({&done, 1});
  }
  for (auto& packet : packets) {
    CHECK(packet[99] == 3.0f);
    CHECK(packet[31 * 128 + 99] == 3.0f);
    stand.device->unregister_host(packet.data());
  }
  stand.device->unregister_host(input.data());
}

TEST_CASE("with gpudirect a GPU that orders no writes of ports is made to, for each batch") {
  const char* const ordering = GENERATE("0", "100");
  const Setting set("GRADWIRE_FAKE_CUDA_WRITES_ORDERING", ordering);
  Stand stand(kWays[3]);
  const std::uint64_t before = flushes();
  REQUIRE(sums(stand));
  REQUIRE(sums(stand));
  CHECK(flushes() - before == (std::string(ordering) == "0" ? 2 : 0));
}

TEST_CASE("with gpudirect a GPU that cannot even be made to is refused, with the reason") {
  const Setting ordering("GRADWIRE_FAKE_CUDA_WRITES_ORDERING", "0");
  const Setting flush("GRADWIRE_FAKE_CUDA_FLUSH_OPTIONS", "0");
  const PluggedGpu plugged("gpu_cuda5", "id=0");
  const auto refused = GpuDevice::open(options_of(kWays[3]));
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message,
             Catch::Contains("gpudirect") && Catch::Contains("neither orders what others write"));
}

TEST_CASE("whoever waits for a kernel that hangs on CUDA gets an answer") {
  Stand stand(GENERATE(kWays[0], kWays[4]));
  std::vector<float> arrays[2] = {std::vector<float>(100, 1.0f), std::vector<float>(100, 2.0f)};
  for (auto& array : arrays) {
    REQUIRE(stand.device->register_host(array.data(), array.size() * sizeof(float), "array"));
  }
  const auto* input = reinterpret_cast<const std::byte*>(arrays[0].data());
  Entry entry;
  entry.kind = Kind::kReduceInPacket;
  entry.count = 100;
  entry.packet = reinterpret_cast<std::byte*>(arrays[1].data());
  entry.inputs = &input;
  Gpu::get().hold(true);
  REQUIRE(stand.backend->submit({&entry, 1}) == 1);
  CHECK_FALSE(stand.queue->executor().stop(1'000'000));
  Completion done;
  CHECK(stand.backend->poll({&done, 1}) == 0);
  Gpu::get().hold(false);
  CHECK(stand.queue->executor().stop(60'000'000'000));
  stand.queue->executor().resume();
  while (stand.backend->poll({&done, 1}) == 0) {
  }
  CHECK(done.ok);
  CHECK(arrays[1] == std::vector<float>(100, 3.0f));
  CHECK(stand.queue->executor().stop(60'000'000'000));
  for (auto& array : arrays) stand.device->unregister_host(array.data());
}

// The last thing that a process does on a GPU: a test of its own.
TEST_CASE("a kernel that faults fails its batch and all that follow, and is not waited for",
          "[.][fault]") {
  Stand stand(GENERATE(kWays[0]));
  REQUIRE(sums(stand));
  std::vector<float> stranger(100, 1.0f);
  const auto* input = reinterpret_cast<const std::byte*>(stranger.data());
  Entry entry;
  entry.kind = Kind::kReduceInPacket;
  entry.count = 100;
  entry.packet = reinterpret_cast<std::byte*>(stranger.data());
  entry.inputs = &input;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(stand.backend->submit({&entry, 1}) == 1);
    Completion done;
    while (stand.backend->poll({&done, 1}) == 0) {
    }
    CHECK_FALSE(done.ok);
  }
  CHECK_THAT(Gpu::get().fault(), Catch::Contains("an illegal address"));
  CHECK(stranger == std::vector<float>(100, 1.0f));
}

}  // namespace
