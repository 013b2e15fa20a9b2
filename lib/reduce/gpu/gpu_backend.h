// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The reduce backend of a shard on a GPU: hands entries to its lane's queue and reports those that
/// have finished, in any order. The shard owns it and its lane calls it; the control thread makes
/// and destroys it.
#pragma once

#include <memory>
#include <vector>

#include "reduce/backend.h"
#include "reduce/gpu/queue.h"

namespace gradwire::reduce {

class GpuBackend final : public Backend {
 public:
  /// `queue` is the lane's, and outlives the backend.
  explicit GpuBackend(GpuQueue& queue);
  ~GpuBackend() override;

  [[nodiscard]] const char* name() const noexcept override;
  [[nodiscard]] const char* path() const noexcept override;
  [[nodiscard]] std::uint32_t sources_max() const noexcept override { return Batch::kSourcesMax; }
  [[nodiscard]] std::size_t submit(std::span<const Entry> entries) noexcept override;
  [[nodiscard]] std::size_t poll(std::span<Completion> done) noexcept override;
  [[nodiscard]] const BackendCounters& counters() const noexcept override { return counters_; }

 private:
  friend class GpuQueue;
  /// The queue calls it when a batch has ended.
  void finished(std::span<const Completion> entries, bool ok,
                const BackendCounters& counters) noexcept;
  void complete(const Completion& entry) noexcept;

  /// So many batches keep a GPU busy: one runs, and the next is there when it ends.
  static constexpr std::uint32_t kEagerBatches = 2;

  GpuQueue& queue_;
  std::uint32_t batches_ = 0;  ///< in the queue
  std::uint32_t entries_in_queue_ = 0;
  std::vector<Completion> done_;  ///< fixed ring: never resized
  std::size_t first_ = 0;
  std::size_t held_ = 0;
  BackendCounters counters_;
};

}  // namespace gradwire::reduce
