// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What the backend does for ops off the ring, in phases (DirectOp::Phase). A backend that works at
/// once is through with a phase when it has its entries, and stores each sum when it comes; to any
/// other they go by the fold queue, kDirectFolds of them at most, and sums are stored from scratch
/// memory when all are here. One lane owns it; it allocates at construction only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/direct/direct_layout.h"
#include "collective/direct/direct_scratch.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_table.h"
#include "collective/shard_config.h"
#include "reduce/backend.h"

namespace gradwire::collective {

class DirectFolds {
 public:
  /// All of them outlive it.
  DirectFolds(const ShardConfig& config, const DirectLayout& layout, DirectScratch& scratch,
              const OpTable& ops, FoldQueue& folds);

  /// Whether the backend does entries before it returns. If not, an op's memory is in use until
  /// Direct::advance() says kDone, also if nothing of it comes to this rank.
  [[nodiscard]] bool at_once() const noexcept { return at_once_; }
  /// Gives the backend the entries for which there was no place.
  void refill() noexcept;

  // Phases.
  /// Whether the op's phase may begin, or goes on.
  [[nodiscard]] bool may_begin(const DirectOp& op) const noexcept;
  void begin(DirectOp& op, DirectOp::Phase phase) const noexcept;
  enum class Given : std::uint8_t { kAll, kSome, kFailed };
  /// Gives the backend those of the op's phase, as many as there is place for.
  [[nodiscard]] Given give_entries(const Op& op, DirectOp& direct) noexcept;
  /// The backend has done one of these.
  void on_done(const FoldWork& work, DirectOp& op) noexcept;
  /// For what goes to all.
  void make_crcs(DirectOp& op) const noexcept;
  /// Stores a chunk that came, at once. @return whether the backend could.
  [[nodiscard]] bool store(const Op& called, DirectOp& op, std::uint64_t chunk,
                           const std::byte* bytes) noexcept;

 private:
  [[nodiscard]] bool give_next(const Op& op, DirectOp& direct, const ChunkSpan& span) noexcept;
  [[nodiscard]] bool has_place() const noexcept {
    return at_once_ || (in_backend_ < kDirectFolds && !folds_.full());
  }
  [[nodiscard]] bool give(const reduce::Entry& entry, DirectOp& op, std::uint16_t sources) noexcept;
  [[nodiscard]] reduce::Entry load_entry(const Op& op, const ChunkSpan& span,
                                         std::byte* to) const noexcept;
  [[nodiscard]] reduce::Entry store_entry(const Op& op, const ChunkSpan& span,
                                          std::byte* from) const noexcept;
  [[nodiscard]] reduce::Entry fold_entry(const Op& op, DirectOp& direct, const ChunkSpan& span,
                                         std::uint16_t sources) noexcept;

  const ShardConfig& config_;
  const DirectLayout& layout_;
  DirectScratch& scratch_;
  const OpTable& ops_;
  FoldQueue& folds_;
  const bool at_once_;
  /// Addresses of the sources of folds, each [nranks]; of the first free_count_ of free_ none is
  /// in use.
  std::vector<const std::byte*> sources_;
  std::vector<std::uint16_t> free_;
  std::uint32_t free_count_ = 0;
  std::uint32_t in_backend_ = 0;  ///< entries of all ops
  bool has_more_ = false;         ///< there are entries for which there was no place
};

}  // namespace gradwire::collective
