// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Chunks for a backend that works on a GPU, and what comes of them. One thread; they allocate.
#pragma once

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "reduce/gpu/device.h"
#include "reduce/gpu/gpu_backend.h"

namespace gradwire::test {

/// Chunks of a few floats, each with a packet and an input of its own, in registered memory.
struct Chunks {
  static constexpr std::uint32_t kFloats = 64;
  explicit Chunks(reduce::GpuDevice& of, std::size_t count)
      : device(of), packets(count * kFloats), inputs(count * kFloats), bases(count) {
    for (std::size_t i = 0; i < packets.size(); ++i) {
      packets[i] = static_cast<float>(i);
      inputs[i] = 0.5f;
    }
    REQUIRE(device.register_host(packets.data(), packets.size() * 4, "packets"));
    REQUIRE(device.register_host(inputs.data(), inputs.size() * 4, "inputs"));
    for (std::size_t i = 0; i < count; ++i) {
      bases[i] = reinterpret_cast<const std::byte*>(&inputs[i * kFloats]);
      reduce::Entry entry;
      entry.kind = reduce::Kind::kReduceInPacket;
      entry.count = kFloats;
      entry.packet = reinterpret_cast<std::byte*>(&packets[i * kFloats]);
      entry.inputs = &bases[i];
      entry.cookie = i;
      entries.push_back(entry);
    }
  }
  ~Chunks() {
    device.unregister_host(packets.data());
    device.unregister_host(inputs.data());
  }
  bool reduced(std::size_t chunk) const {
    for (std::size_t i = chunk * kFloats; i < (chunk + 1) * kFloats; ++i) {
      if (packets[i] != static_cast<float>(i) + 0.5f) return false;
    }
    return true;
  }
  reduce::GpuDevice& device;
  std::vector<float> packets;
  std::vector<float> inputs;
  std::vector<const std::byte*> bases;
  std::vector<reduce::Entry> entries;
};

/// Polls until `count` completions came, or five seconds have passed.
inline std::vector<reduce::Completion> collect(reduce::Backend& backend, std::size_t count) {
  std::vector<reduce::Completion> all;
  std::array<reduce::Completion, 16> done;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (all.size() < count && std::chrono::steady_clock::now() < end) {
    const std::size_t n = backend.poll(done);
    all.insert(all.end(), done.begin(), done.begin() + static_cast<std::ptrdiff_t>(n));
    if (n == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return all;
}

/// Hands all entries over, as often as it takes. @return how often the backend took nothing.
inline std::size_t submit_all(reduce::Backend& backend, std::span<const reduce::Entry> entries,
                              std::vector<reduce::Completion>& all) {
  std::size_t refused = 0;
  std::array<reduce::Completion, 16> done;
  while (!entries.empty()) {
    const std::size_t taken = backend.submit(entries);
    refused += taken == 0 ? 1 : 0;
    entries = entries.subspan(taken);
    const std::size_t n = backend.poll(done);
    all.insert(all.end(), done.begin(), done.begin() + static_cast<std::ptrdiff_t>(n));
    if (taken == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return refused;
}

}  // namespace gradwire::test
