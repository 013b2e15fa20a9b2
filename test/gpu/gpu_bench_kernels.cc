// SPDX-License-Identifier: BSD-3-Clause
#include "gpu_bench_kernels.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "reduce/cuda/kernels.h"

namespace gradwire::gpu_bench {
namespace {

using namespace gradwire::reduce;

constexpr int kRounds = 10;
constexpr std::uint32_t kPacketBytes = 8'192;
/// Packets lie as in a mempool: buffers of so many bytes, the payload somewhere in each.
constexpr std::uint32_t kBufferBytes = 9'216;

void check(cudaError_t result, const char* call) {
  if (result != cudaSuccess) {
    throw std::runtime_error(fmt::format("{}: {}", call, cudaGetErrorString(result)));
  }
}

/// Best time of several rounds of `work`, in seconds, by the GPU's clock.
template <class Work>
double best_seconds(cudaStream_t stream, Work&& work) {
  cudaEvent_t start{};
  cudaEvent_t end{};
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    check(cudaEventRecord(start, stream), "cudaEventRecord");
    work();
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, end), "cudaEventElapsedTime");
    best = std::min(best, ms / 1e3);
  }
  cudaEventDestroy(start);
  cudaEventDestroy(end);
  return best;
}

std::uint32_t processors() {
  int device = 0;
  int count = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  return static_cast<std::uint32_t>(count);
}

std::byte* device_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "cudaMalloc");
  check(cudaMemset(memory, 0, bytes), "cudaMemset");
  return static_cast<std::byte*>(memory);
}

std::byte* pinned_memory(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
        "cudaHostAlloc");
  std::memset(memory, 0, bytes);
  return static_cast<std::byte*>(memory);
}

void add(Batch& batch, DataType type, std::uint32_t count, std::byte* packet, std::byte* input) {
  BatchItem& item = batch.items[batch.item_count++];
  item = {};
  item.count = count;
  item.first_tile = batch.tile_count;
  item.first_address = static_cast<std::uint16_t>(batch.address_count);
  item.datatype = batch.datatype = type;
  item.source_count = 2;
  item.target_count = 1;
  item.alignment = 16;
  batch.uniform = 1;
  for (std::byte* address : {packet, input, packet}) {
    batch.addresses[batch.address_count++] = reinterpret_cast<std::uintptr_t>(address);
  }
  const std::uint64_t bytes = std::uint64_t{count} * element_bytes(type);
  batch.tile_count += static_cast<std::uint32_t>((bytes + kTileBytes - 1) / kTileBytes);
}

}  // namespace

KernelRate device_rate(DataType type, std::uint32_t bytes) {
  cudaStream_t stream{};
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  std::byte* a = device_memory(bytes);
  std::byte* b = device_memory(bytes);
  Batch batch;
  add(batch, type, bytes / element_bytes(type), a, b);
  const std::uint32_t blocks = processors() * 16;
  const double reduce_s = best_seconds(
      stream, [&] { check(cuda::launch_batch(batch, blocks, stream), "launch_batch"); });
  const double copy_s = best_seconds(stream, [&] {
    check(cudaMemcpyAsync(a, b, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
  });
  cudaFree(a);
  cudaFree(b);
  cudaStreamDestroy(stream);
  return {3.0 * bytes / reduce_s / 1e9, 2.0 * bytes / copy_s / 1e9};
}

KernelRate mapped_rate(DataType type, std::uint32_t batch_count) {
  const std::uint32_t packet_count = batch_count * Batch::kItems;
  const std::size_t payload = std::size_t{packet_count} * kPacketBytes;
  // As the executor has them: one for each slot of a queue, each with a batch at a time.
  cudaStream_t streams[kQueueSlots]{};
  cudaEvent_t ended[kQueueSlots]{};
  for (std::uint32_t slot = 0; slot < kQueueSlots; ++slot) {
    check(cudaStreamCreateWithFlags(&streams[slot], cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreateWithFlags(&ended[slot], cudaEventDisableTiming), "cudaEventCreate");
  }
  cudaEvent_t begun{};
  check(cudaEventCreateWithFlags(&begun, cudaEventDisableTiming), "cudaEventCreate");
  // The first stream's time is that of all: the others begin behind it, and it waits for them.
  const auto on_streams = [&](std::uint32_t count, auto&& work) {
    check(cudaEventRecord(begun, streams[0]), "cudaEventRecord");
    for (std::uint32_t slot = 1; slot < count; ++slot) {
      check(cudaStreamWaitEvent(streams[slot], begun, 0), "cudaStreamWaitEvent");
    }
    work();
    for (std::uint32_t slot = 1; slot < count; ++slot) {
      check(cudaEventRecord(ended[slot], streams[slot]), "cudaEventRecord");
      check(cudaStreamWaitEvent(streams[0], ended[slot], 0), "cudaStreamWaitEvent");
    }
  };
  std::byte* packets = pinned_memory(std::size_t{packet_count} * kBufferBytes);
  std::byte* gradient = device_memory(payload);
  std::vector<Batch> batches(batch_count);
  for (std::uint32_t p = 0; p < packet_count; ++p) {
    // Scattered: neighbors in a batch are far from each other in memory.
    const std::uint32_t place = p * 7'919u % packet_count;
    add(batches[p / Batch::kItems], type, kPacketBytes / element_bytes(type),
        packets + std::size_t{place} * kBufferBytes + 192,
        gradient + std::size_t{p} * kPacketBytes);
  }
  const std::uint32_t blocks = processors() * 16;
  const double reduce_s = best_seconds(streams[0], [&] {
    on_streams(kQueueSlots, [&] {
      for (std::uint32_t b = 0; b < batch_count; ++b) {
        check(cuda::launch_batch(batches[b], blocks, streams[b % kQueueSlots]), "launch_batch");
      }
    });
  });
  std::byte* host_in = pinned_memory(payload);
  std::byte* host_out = pinned_memory(payload);
  std::byte* other = device_memory(payload);
  // Pinned copies both ways at once.
  const double copy_s = best_seconds(streams[0], [&] {
    on_streams(2, [&] {
      check(cudaMemcpyAsync(gradient, host_in, payload, cudaMemcpyHostToDevice, streams[0]),
            "cudaMemcpyAsync");
      check(cudaMemcpyAsync(host_out, other, payload, cudaMemcpyDeviceToHost, streams[1]),
            "cudaMemcpyAsync");
    });
  });
  for (std::byte* memory : {gradient, other}) cudaFree(memory);
  for (std::byte* memory : {packets, host_in, host_out}) cudaFreeHost(memory);
  cudaEventDestroy(begun);
  for (cudaEvent_t event : ended) cudaEventDestroy(event);
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  return {2.0 * payload / reduce_s / 1e9, 2.0 * payload / copy_s / 1e9};
}

std::string device_name() {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return properties.name;
}

}  // namespace gradwire::gpu_bench
