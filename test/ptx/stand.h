// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the tests on the interpreter share: the PTX, and entries whose arrays it may touch.
#pragma once

#include <algorithm>
#include <deque>
#include <string>

#include "backend.h"
#include "batches.h"
#include "in_order_cases.h"
#include "texts.h"

namespace gradwire::ptx {

/// The guards about an array are out of bounds, as memory that is not registered is.
struct InMachine final : test::Reach {
  explicit InMachine(PtxBackend& of) : backend(of) {}
  void add(test::Array& array) override { backend.machine().memory.add(array.data(), array.bytes); }
  void remove(test::Array& array) override { backend.machine().memory.remove(array.data()); }
  PtxBackend& backend;
};

/// Runs one case. @return what is wrong, or an empty string.
[[nodiscard]] std::string check(const test::Case& c, PtxBackend& backend, std::mt19937_64& random);

[[nodiscard]] std::string check(const test::OrderCase& c, PtxBackend& backend,
                                std::mt19937_64& random);

/// Runs cases as one batch, with the packets' CRCs. @return what is wrong, or an empty string.
[[nodiscard]] std::string check_batch(const std::vector<test::Case>& cases, PtxBackend& backend,
                                      std::mt19937_64& random,
                                      const std::vector<test::OrderCase>& folds = {});

/// A batch of one sum of fp32, of 1 and 2, into one array.
struct OneSum {
  static constexpr std::uint32_t kCount = 2500;  ///< three tiles, the last one short
  explicit OneSum(Machine& of) : machine(of), arrays(3, std::vector<float>(kCount)) {
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      std::fill(arrays[i].begin(), arrays[i].end(), i == 2 ? -7.0f : static_cast<float>(i + 1));
      machine.memory.add(arrays[i].data(), arrays[i].size() * sizeof(float));
      pointers.push_back(reinterpret_cast<std::byte*>(arrays[i].data()));
    }
    const std::byte* const sources[] = {pointers[0], pointers[1]};
    reduce::Entry entry;
    entry.count = kCount;
    make_empty(batch);
    append(batch, entry, reduce::Fold{sources, &pointers[2], 2, 1, kCount}, nullptr);
  }
  ~OneSum() {
    for (const auto& array : arrays) machine.memory.remove(array.data());
  }
  /// As if items with many addresses stood before it.
  void move_addresses(std::uint32_t to) {
    std::copy_n(batch.addresses, 3, batch.addresses + to);
    std::fill_n(batch.addresses, 3, kJunk);
    batch.items[0].first_address = static_cast<std::uint16_t>(to);
    batch.address_count = to + 3;
  }
  [[nodiscard]] bool is_right() const { return arrays[2] == std::vector<float>(kCount, 3.0f); }
  OneSum(const OneSum&) = delete;
  OneSum& operator=(const OneSum&) = delete;

  Machine& machine;
  std::vector<std::vector<float>> arrays;
  std::vector<std::byte*> pointers;
  reduce::Batch batch;
};

}  // namespace gradwire::ptx
