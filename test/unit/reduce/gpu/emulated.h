// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A GPU, a queue and a backend on an emulated device, for tests.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "reduce/gpu/device.h"
#include "reduce/gpu/gpu_backend.h"
#include "support/plugged_gpu.h"

namespace gradwire::test {

struct Emulated {
  PluggedGpu plugged;
  std::unique_ptr<reduce::GpuDevice> device;
  std::unique_ptr<reduce::GpuQueue> queue;
  std::unique_ptr<reduce::GpuBackend> backend;

  explicit Emulated(const std::string& arguments = "",
                    reduce::Staging staging = reduce::Staging::kMapped,
                    reduce::KernelMode kernel = reduce::KernelMode::kLaunch,
                    std::uint32_t payload_bytes = 32'768)
      : plugged("gpu_emu3", arguments) {
    REQUIRE(plugged.result() == 0);
    reduce::GpuOptions options;
    options.device = "gpu_emu3";
    options.staging = staging;
    options.kernel = kernel;
    auto opened = reduce::GpuDevice::open(options);
    INFO((opened ? "" : opened.error().message));
    REQUIRE(opened);
    device = std::move(*opened);
    auto made = reduce::GpuQueue::create(*device, payload_bytes);
    INFO((made ? "" : made.error().message));
    REQUIRE(made);
    queue = std::move(*made);
    backend = std::make_unique<reduce::GpuBackend>(*queue);
  }
  ~Emulated() {
    backend.reset();
    queue.reset();
    device.reset();
  }
};

}  // namespace gradwire::test
