// SPDX-License-Identifier: BSD-3-Clause
// The kernel of wire formats on a CUDA device, or on the interpreter in its place: the codec's
// bits. Exits 77 without either.
#include <cuda_runtime_api.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

#include "formats/joined_cases.h"
#include "reduce/cuda/kernels.h"
#include "reduce/gpu/device.h"
#include "reduce/gpu/format_append.h"
#include "support/plugged_gpu.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;
using namespace gradwire::test;

constexpr int kNoGpu = 77;
constexpr std::size_t kArenaBytes = std::size_t{1} << 20;
constexpr std::size_t kFrame = 64;
constexpr std::size_t kPage = 4096;

/// Works on copies in registered memory, at the same distance from a border of 64 bytes.
class CudaRunner final : public FormatRunner {
 public:
  CudaRunner() : arena_(static_cast<std::byte*>(std::aligned_alloc(kPage, kArenaBytes))) {
    GpuOptions options;
    options.device = "gpu_cuda6";
    options.staging = Staging::kMapped;
    auto opened = GpuDevice::open(options);
    INFO((opened ? "" : opened.error().message));
    REQUIRE(opened);
    device_ = std::move(*opened);
    REQUIRE(device_->register_host(arena_, kArenaBytes, "a test's arrays"));
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    REQUIRE(cuda::load_kernels() == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
  }
  ~CudaRunner() override {
    cudaStreamDestroy(stream_);
    device_->unregister_host(arena_);
    device_.reset();
    std::free(arena_);
  }
  [[nodiscard]] const char* name() const override { return "CUDA"; }
  [[nodiscard]] bool part(const FormatPart& part) override {
    FormatPart copy = part;
    const std::vector<BytesIn> members = copied(part.members);
    copy.members = members;
    copy.residual_in = copied(part.residual_in);
    copy.residual_out = written(part.residual_out);
    copy.wire = written(part.wire);
    copy.stored = written(part.stored);
    return append(batch_, copy) && run();
  }
  [[nodiscard]] bool result(const FormatResult& result) override {
    FormatResult copy = result;
    const std::vector<BytesIn> parts = copied(result.parts);
    copy.parts = parts;
    copy.sum = copied(result.sum);
    copy.wire = written(result.wire);
    copy.stored = written(result.stored);
    return append(batch_, copy) && run();
  }
  [[nodiscard]] bool decode(WireFormat format, DataType type, BytesIn wire,
                            BytesOut values) override {
    return append_decoding(batch_, format, type, copied(wire), written(values)) && run();
  }

 private:
  /// What lies at the same place is copied once: work in place stays in place.
  BytesOut copied(BytesIn array) {
    if (array.empty()) return {};
    const auto [found, is_new] = copies_.try_emplace(array.data(), 0);
    if (is_new) {
      found->second = used_ + reinterpret_cast<std::uintptr_t>(array.data()) % kFrame;
      used_ = (found->second + array.size() + kFrame) / kFrame * kFrame;
      REQUIRE(used_ <= kArenaBytes);
      std::memcpy(arena_ + found->second, array.data(), array.size());
    }
    return {arena_ + found->second, array.size()};
  }
  std::vector<BytesIn> copied(std::span<const BytesIn> arrays) {
    std::vector<BytesIn> found;
    for (const BytesIn& array : arrays) found.push_back(copied(array));
    return found;
  }
  BytesOut written(BytesOut array) {
    outputs_.push_back(array);
    return copied(array);
  }
  bool run() {
    bool ok = cuda::launch_formats(batch_, 3, stream_) == cudaSuccess;
    cudaError_t state = cudaErrorNotReady;
    while (ok && (state = cudaStreamQuery(stream_)) == cudaErrorNotReady) {
    }
    ok = ok && state == cudaSuccess;
    for (const BytesOut& output : outputs_) {
      if (!output.empty()) {
        std::memcpy(output.data(), arena_ + copies_.at(output.data()), output.size());
      }
    }
    outputs_.clear();
    copies_.clear();
    used_ = 0;
    batch_ = {};
    return ok;
  }

  std::byte* const arena_;
  std::unique_ptr<GpuDevice> device_;
  cudaStream_t stream_ = nullptr;
  FormatBatch batch_;
  std::map<const std::byte*, std::size_t> copies_;  ///< places in the arena
  std::vector<BytesOut> outputs_;
  std::size_t used_ = 0;
};

TEST_CASE("a GPU gives the codec's bits of parts, results and decodings of wire formats") {
  const PluggedGpu plugged("gpu_cuda6", "id=0");
  if (plugged.result() != 0) {
    std::printf("skipped: gpu_cuda finds no GPU\n");
    std::fflush(stdout);
    std::_Exit(kNoGpu);
  }
  CudaRunner runner;
  std::mt19937_64 random(1);
  check_parts(runner, 1, random);
  check_results(runner, 1, random);
  check_decodings(runner, random);
}

}  // namespace
