// SPDX-License-Identifier: BSD-3-Clause
#include "reduce/gpu/device.h"

#include <catch2/catch.hpp>

#include "emulated.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;
using Catch::Matchers::Contains;

GpuOptions options_of(const std::string& device, Staging staging, KernelMode kernel) {
  GpuOptions options;
  options.device = device;
  options.staging = staging;
  options.kernel = kernel;
  return options;
}

TEST_CASE("a GPU that is not there is refused by its name, with those that are") {
  const PluggedGpu gpu("gpu_emu4");
  const auto opened =
      GpuDevice::open(options_of("gpu_cuda0", Staging::kMapped, KernelMode::kLaunch));
  REQUIRE_FALSE(opened);
  CHECK_THAT(opened.error().message, Contains("gpu_cuda0") && Contains("gpu_emu4"));
}

TEST_CASE("the path follows from what was asked for and what the GPU can") {
  SECTION("mapped") {
    const PluggedGpu gpu("gpu_emu4");
    const auto opened =
        GpuDevice::open(options_of("gpu_emu4", Staging::kMapped, KernelMode::kPersistent));
    REQUIRE(opened);
    CHECK((*opened)->path() == PayloadPath::kMapped);
  }
  SECTION("copy, where its memory can be mapped") {
    const PluggedGpu gpu("gpu_emu4");
    const auto opened =
        GpuDevice::open(options_of("gpu_emu4", Staging::kCopy, KernelMode::kLaunch));
    REQUIRE(opened);
    CHECK((*opened)->path() == PayloadPath::kCopyMapped);
    CHECK_THAT((*opened)->facts().at(1), Contains("copy by CPU mapping"));
  }
  SECTION("copy, where it cannot") {
    const PluggedGpu gpu("gpu_emu4", "cpu_map=0");
    const auto opened =
        GpuDevice::open(options_of("gpu_emu4", Staging::kCopy, KernelMode::kLaunch));
    REQUIRE(opened);
    CHECK((*opened)->path() == PayloadPath::kCopyEngine);
    CHECK_THAT((*opened)->facts().at(1), Contains("no GDRCopy"));
  }
  SECTION("auto, where its memory can be mapped") {
    const PluggedGpu gpu("gpu_emu4");
    const auto opened =
        GpuDevice::open(options_of("gpu_emu4", Staging::kAuto, KernelMode::kPersistent));
    REQUIRE(opened);
    CHECK((*opened)->path() == PayloadPath::kCopyMapped);
    REQUIRE((*opened)->warnings().size() == 1);
    CHECK_THAT((*opened)->warnings()[0], Contains("falls back to copy by CPU mapping: gpudirect"));
  }
  SECTION("auto, where it cannot: the warning and the report say why") {
    const PluggedGpu gpu("gpu_emu4", "cpu_map=0");
    const auto opened =
        GpuDevice::open(options_of("gpu_emu4", Staging::kAuto, KernelMode::kPersistent));
    REQUIRE(opened);
    CHECK((*opened)->path() == PayloadPath::kMapped);
    REQUIRE((*opened)->warnings().size() == 1);
    CHECK_THAT((*opened)->warnings()[0], Contains("falls back to mapped: gpudirect") &&
                                             Contains("copy: its memory cannot be mapped"));
    CHECK_THAT((*opened)->facts().at(1),
               Contains("path of payloads: mapped") && Contains("no GDRCopy"));
  }
  SECTION("what was asked for and is there needs no warning") {
    const PluggedGpu gpu("gpu_emu4");
    const auto opened =
        GpuDevice::open(options_of("gpu_emu4", Staging::kMapped, KernelMode::kLaunch));
    REQUIRE(opened);
    CHECK((*opened)->warnings().empty());
  }
  SECTION("a persistent kernel and the copy engine do not go together") {
    const PluggedGpu gpu("gpu_emu4", "cpu_map=0");
    const auto opened =
        GpuDevice::open(options_of("gpu_emu4", Staging::kCopy, KernelMode::kPersistent));
    REQUIRE_FALSE(opened);
    CHECK_THAT(opened.error().message, Contains("gpu.kernel") && Contains("mapped"));
  }
}

TEST_CASE("a GPU without memory for a queue says how much is missing") {
  Emulated gpu("memory_mib=1", Staging::kCopy, KernelMode::kLaunch, 1'024);
  const auto queue = GpuQueue::create(*gpu.device, 65'472);
  REQUIRE_FALSE(queue);
  CHECK_THAT(queue.error().message, Contains("gpu_emu3") && Contains("bytes"));
}

TEST_CASE("memory is registered while a persistent kernel works, which parks for it") {
  Emulated gpu("", Staging::kMapped, KernelMode::kPersistent);
  std::vector<std::byte> memory(100'000);
  for (int i = 0; i < 20; ++i) {
    REQUIRE(gpu.device->register_host(memory.data(), memory.size(), "memory"));
    CHECK_FALSE(gpu.device->register_host(memory.data(), 10, "the same"));
    gpu.device->unregister_host(memory.data());
  }
}

}  // namespace
