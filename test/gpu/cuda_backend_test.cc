// SPDX-License-Identifier: BSD-3-Clause
// The CPU backend's cases on a CUDA device, bit by bit, by each way that it can. Exits 77 without
// one. GRADWIRE_GPU_CASES=N runs one in N of them: what an interpreter is in place of the GPU for.
// GRADWIRE_GPU_KERNEL=launch leaves the persistent kernel out: a tool cannot watch what never ends.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "in_order_cases.h"
#include "reduce/gpu/device.h"
#include "reduce/gpu/gpu_backend.h"
#include "registered.h"
#include "support/plugged_gpu.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;

constexpr int kSkipped = 77;

/// The GPU, or the end of the test.
const PluggedGpu& plugged() {
  static const PluggedGpu gpu("gpu_cuda0", "id=0");
  if (gpu.result() != 0) {
    std::printf("skipped: gpu_cuda finds no GPU\n");
    std::fflush(stdout);
    std::_Exit(kSkipped);
  }
  return gpu;
}

struct Way {
  Staging staging;
  KernelMode kernel;
  std::size_t every;  ///< so many'th case
};

std::size_t one_in() {
  const char* const text = std::getenv("GRADWIRE_GPU_CASES");
  return text == nullptr ? 1 : std::max<std::size_t>(std::strtoull(text, nullptr, 10), 1);
}

TEST_CASE("a GPU gives the reference's bits by every way that it has") {
  plugged();
  const Way way = GENERATE(Way{Staging::kMapped, KernelMode::kLaunch, 3},
                           Way{Staging::kCopy, KernelMode::kLaunch, 11},
                           Way{Staging::kMapped, KernelMode::kPersistent, 11});
  const char* const only = std::getenv("GRADWIRE_GPU_KERNEL");
  if (only != nullptr && std::string(only) != name_of(way.kernel)) return;
  GpuOptions options;
  options.device = "gpu_cuda0";
  options.staging = way.staging;
  options.kernel = way.kernel;
  auto device = GpuDevice::open(options);
  INFO((device ? "" : device.error().message));
  REQUIRE(device);
  auto queue = GpuQueue::create(**device, 32'768);
  INFO((queue ? "" : queue.error().message));
  REQUIRE(queue);
  auto backend = std::make_unique<GpuBackend>(**queue);
  std::printf("%s, %s\n", backend->path(), name_of(way.kernel));
  Registered registered(**device);
  const std::size_t every = way.every * one_in();
  std::size_t index = 0;
  for (const DataType type : kDataTypes) {
    for (const RedOp redop : kRedOps) {
      for_each_case(type, redop, [&](const Case& c, std::mt19937_64& random) {
        if (index++ % every != 0) return;
        const World before(c, random);
        World expected = before;
        expect(c, expected);
        const std::string wrong = run(c, *backend, before, expected, registered);
        if (!wrong.empty()) FAIL(wrong);
      });
      for_each_order_case(type, redop, [&](const OrderCase& c, std::mt19937_64& random) {
        if (index++ % every != 0) return;
        const std::string wrong = run(c, *backend, random, registered);
        if (!wrong.empty()) FAIL(wrong);
      });
    }
  }
  CHECK(backend->counters().chunks_reduced > 0);
  CHECK(std::string(backend->name()) == "cuda");
  backend.reset();
}

TEST_CASE("every fp16 and bf16 pattern folds on the GPU to the reference's bits") {
  plugged();
  GpuOptions options;
  options.device = "gpu_cuda0";
  options.staging = Staging::kMapped;
  auto device = GpuDevice::open(options);
  REQUIRE(device);
  auto queue = GpuQueue::create(**device, 131'072);
  REQUIRE(queue);
  GpuBackend backend(**queue);
  std::vector<std::byte> packet(131'072);
  std::vector<std::byte> input(131'072);
  REQUIRE((*device)->register_host(packet.data(), packet.size(), "packets"));
  REQUIRE((*device)->register_host(input.data(), input.size(), "inputs"));
  const auto* base = input.data();
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    for (const std::uint16_t partner : {0x0000, 0x8000, 0x0001, 0x03ff, 0x0400, 0x3c00, 0xbc01,
                                        0x7bff, 0x7c00, 0xfc00, 0x7d55, 0x3f80}) {
      for (const RedOp redop : kRedOps) {
        if (!fits(redop, type)) continue;
        for (std::size_t i = 0; i < 65'536; ++i) {
          store_element(packet.data(), i, 2, i);
          store_element(input.data(), i, 2, partner);
        }
        Entry entry;
        entry.kind = Kind::kReduceInPacket;
        entry.datatype = type;
        entry.redop = redop;
        entry.finalize = true;
        entry.divisor = 3;
        entry.count = 65'536;
        entry.packet = packet.data();
        entry.inputs = &base;
        REQUIRE(backend.submit({&entry, 1}) == 1);
        Completion done;
        while (backend.poll({&done, 1}) == 0) {
        }
        REQUIRE(done.ok);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < 65'536; ++i) {
          const std::array<std::uint64_t, 2> values = {i, partner};
          wrong +=
              load_element(packet.data(), i, 2) == expected_fold(type, redop, values, 3) ? 0 : 1;
        }
        INFO(name_of(type) << " " << name_of(redop) << " with " << partner);
        CHECK(wrong == 0);
      }
    }
  }
  (*device)->unregister_host(packet.data());
  (*device)->unregister_host(input.data());
}

}  // namespace
