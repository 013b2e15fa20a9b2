// SPDX-License-Identifier: BSD-3-Clause
// gpu_bench DRIVER JSON [--quick]: the benches of scripts/gpu-check.sh on CUDA device 0, as a table
// and as JSON. --quick only tries them, on little data. Exits 77 without a GPU.
#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_gpudev.h>
#include <rte_malloc.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gpu_bench_kernels.h"
#include "reduce/gpu/device.h"
#include "reduce/gpu/gpu_backend.h"

namespace {

using namespace gradwire;
using namespace gradwire::reduce;

constexpr int kSkipped = 77;

struct Sizes {
  std::uint32_t device_bytes = 256u << 20;
  std::uint32_t batches = 256;
  int latency_rounds = 20'000;
};
constexpr Sizes kQuick = {128u << 10, 2, 5};

/// Median time of a batch of one packet, from submit() to its completion, in microseconds.
Result<double> latency_us(Staging staging, KernelMode kernel, int rounds) {
  GpuOptions options;
  options.device = "gpu_cuda0";
  options.staging = staging;
  options.kernel = kernel;
  auto device = GpuDevice::open(options);
  if (!device) return tl::unexpected(device.error());
  constexpr std::size_t kBytes = 8'192;
  auto* memory = static_cast<std::byte*>(rte_zmalloc("bench", 2 * kBytes, 4'096));
  if (memory == nullptr) return fail(ErrorCode::kResourceExhausted, "no EAL memory");
  if (auto done = (*device)->register_host(memory, 2 * kBytes, "packet"); !done) {
    return tl::unexpected(done.error());
  }
  auto queue = GpuQueue::create(**device, kBytes);
  if (!queue) return tl::unexpected(queue.error());
  std::vector<double> times;
  {
    GpuBackend backend(**queue);
    const std::byte* input = memory + kBytes;
    Entry entry;
    entry.kind = Kind::kReduceInPacket;
    entry.count = kBytes / 4;
    entry.packet = memory;
    entry.inputs = &input;
    for (int round = 0; round < rounds; ++round) {
      const auto start = std::chrono::steady_clock::now();
      Completion done;
      if (backend.submit({&entry, 1}) != 1) return fail(ErrorCode::kInternal, "not taken");
      while (backend.poll({&done, 1}) == 0) {
      }
      if (!done.ok) return fail(ErrorCode::kInternal, "the batch failed");
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count());
    }
  }
  queue->reset();
  (*device)->unregister_host(memory);
  rte_free(memory);
  std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
  return times[static_cast<std::size_t>(rounds) / 2];
}

nlohmann::json rate_row(const std::string& name, const gpu_bench::KernelRate& rate, double bar) {
  const double part = rate.reduce_gbytes / rate.copy_gbytes;
  fmt::print("{:44} {:8.1f} GB/s, copies {:8.1f} GB/s: {:.3f} (bar {:.2f})\n", name,
             rate.reduce_gbytes, rate.copy_gbytes, part, bar);
  return {{"name", name},
          {"gbytes_per_s", rate.reduce_gbytes},
          {"copy_gbytes_per_s", rate.copy_gbytes},
          {"of_copies", part},
          {"bar", bar}};
}

nlohmann::json run(const Sizes& sizes) {
  nlohmann::json out;
  out["device"] = gpu_bench::device_name();
  fmt::print("{}\n", gpu_bench::device_name());
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    out["rows"].push_back(rate_row(fmt::format("reduce kernel, GPU memory, {}, {} KiB",
                                               name_of(type), sizes.device_bytes >> 10),
                                   gpu_bench::device_rate(type, sizes.device_bytes), 0.90));
    out["rows"].push_back(rate_row(fmt::format("reduce kernel, mapped packets, {}", name_of(type)),
                                   gpu_bench::mapped_rate(type, sizes.batches), 0.80));
  }
  for (const Staging staging : {Staging::kMapped, Staging::kCopy}) {
    for (const KernelMode kernel : {KernelMode::kLaunch, KernelMode::kPersistent}) {
      const std::string name =
          fmt::format("one-packet batch, {}, {}", staging == Staging::kMapped ? "mapped" : "copy",
                      reduce::name_of(kernel));
      const auto us = latency_us(staging, kernel, sizes.latency_rounds);
      if (us) {
        fmt::print("{:44} {:8.2f} us\n", name, *us);
        out["rows"].push_back({{"name", name}, {"median_us", *us}});
      } else {
        fmt::print("{:44} {}\n", name, us.error().message);
        out["rows"].push_back({{"name", name}, {"error", us.error().message}});
      }
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "gpu_bench DRIVER JSON [--quick]\n");
    return 2;
  }
  std::vector<std::string> words = {
      "gpu_bench",  "--no-huge",     "-m", "512",   "--no-pci", "--no-telemetry", "--no-shconf",
      "--lcores=0", "--log-level=4", "-d", argv[1], "--vdev",   "gpu_cuda0,id=0"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  if (rte_eal_init(static_cast<int>(arguments.size()), arguments.data()) < 0) return 1;
  if (rte_gpu_count_avail() == 0) {
    fmt::print("skipped: gpu_cuda finds no GPU\n");
    return kSkipped;
  }
  try {
    const bool quick = argc > 3 && std::string(argv[3]) == "--quick";
    const nlohmann::json result = run(quick ? kQuick : Sizes{});
    std::ofstream(argv[2]) << result.dump(1) << '\n';
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
