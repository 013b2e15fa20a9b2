// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A reduce backend that finishes late and in another order, as a GPU's does: the CPU backend does
/// the work, and later polls report it. One host owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "reduce/backend.h"
#include "sim/random.h"

namespace gradwire::sim {

class SlowBackend final : public reduce::Backend {
 public:
  /// An entry is done in each poll with `chance_per_poll`.
  SlowBackend(std::size_t capacity, double chance_per_poll, std::uint64_t seed);
  [[nodiscard]] const char* name() const noexcept override { return "slow"; }
  [[nodiscard]] std::uint32_t sources_max() const noexcept override {
    return inner_->sources_max();
  }
  [[nodiscard]] std::size_t submit(std::span<const reduce::Entry> entries) noexcept override;
  [[nodiscard]] std::size_t poll(std::span<reduce::Completion> done) noexcept override;
  [[nodiscard]] const reduce::BackendCounters& counters() const noexcept override;
  /// From now on every entry is done in the next poll: before the shard goes.
  void hurry() noexcept { chance_ = 1; }
  [[nodiscard]] bool busy() const noexcept { return held_ != 0; }

 private:
  std::unique_ptr<reduce::Backend> inner_;
  std::vector<reduce::Entry> entries_;
  std::size_t held_ = 0;
  double chance_;
  Random random_;
};

}  // namespace gradwire::sim
