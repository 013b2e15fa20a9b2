// SPDX-License-Identifier: BSD-3-Clause
#include "collective/direct/direct_folds.h"

#include <algorithm>

#include "base/planted_bug.h"
#include "base/profile.h"
#include "collective/ops/op_memory.h"

namespace gradwire::collective {

DirectFolds::DirectFolds(const ShardConfig& config, const DirectLayout& layout,
                         DirectScratch& scratch, const OpTable& ops, FoldQueue& folds)
    : config_(config),
      layout_(layout),
      scratch_(scratch),
      ops_(ops),
      folds_(folds),
      at_once_(folds.backend().runs_at_once()),
      sources_(std::size_t{config.nranks} * (at_once_ ? 1 : kDirectFolds)) {
  for (std::size_t at = 0; at < sources_.size(); at += config.nranks) {
    free_.push_back(static_cast<std::uint16_t>(free_count_++));
  }
}

void DirectFolds::on_done(const FoldWork& work, DirectOp& op) noexcept {
  require(op.in_backend > 0 && in_backend_ > 0,
          "a direct op's memory stays as long as the backend has it");
  --op.in_backend;
  --in_backend_;
  if (work.sources != 0) free_[free_count_++] = work.sources - 1;
}

bool DirectFolds::store(const Op& called, DirectOp& op, std::uint64_t chunk,
                        const std::byte* bytes) noexcept {
  // A store only reads it.
  return give(store_entry(called, op.partition.span_of(chunk), const_cast<std::byte*>(bytes)), op,
              0);
}

void DirectFolds::refill() noexcept {
  if (!has_more_) return;
  has_more_ = false;
  for (std::uint32_t i = 0; i < scratch_.size() && !has_more_; ++i) {
    DirectOp& direct = scratch_.at(i);
    const Op* op = ops_.find(direct.op_seq);
    if (op == nullptr || !may_begin(direct)) continue;
    require(give_entries(*op, direct) != Given::kFailed, "entries that wait fail later");
  }
}

bool DirectFolds::may_begin(const DirectOp& op) const noexcept {
  if (op.gathered && op.phase != DirectOp::Phase::kLoad) {
    return !op.done() && op.reach == config_.nranks;
  }
  switch (op.phase) {
    case DirectOp::Phase::kLoad:
      return true;
    case DirectOp::Phase::kFold:
      return !op.to_fold || op.missing_parts == 0;
    case DirectOp::Phase::kStore:
      return at_once_ || op.missing_sums == 0;
    case DirectOp::Phase::kSums:
      return op.missing_sums == 0;
    case DirectOp::Phase::kDone:
      break;
  }
  return false;
}

void DirectFolds::begin(DirectOp& op, DirectOp::Phase phase) const noexcept {
  op.phase = phase;
  op.next_chunk = layout_.chunks_of_phase(op).first;
  op.next_element = 0;
}

/// For what goes to all.
void DirectFolds::make_crcs(DirectOp& op) const noexcept {
  const bool to_all = op.steps.to_all;
  const auto [first, end] = to_all ? layout_.chunks_of_phase(op) : layout_.own_chunks(op);
  const std::uint32_t width =
      to_all ? layout_.part_width(op.call.datatype()) : layout_.sum_width(op);
  for (std::uint64_t chunk = first; chunk < end; ++chunk) {
    if (!layout_.is_on_lane(chunk)) continue;
    const std::byte* bytes = to_all ? layout_.where_loaded(op, chunk) : layout_.sum(op, chunk);
    op.crcs[to_all ? ops_.index_of(chunk) : chunk - first] =
        wire::crc32c({bytes, op.partition.elements(chunk) * std::size_t{width}});
  }
}

DirectFolds::Given DirectFolds::give_entries(const Op& op, DirectOp& direct) noexcept {
  const std::uint64_t end = layout_.chunks_of_phase(direct).end;
  const DirectLayout::Chunks own = layout_.own_chunks(direct);
  const bool skips_own = direct.phase == DirectOp::Phase::kStore && direct.steps.to_owner;
  while (direct.next_chunk < end) {
    const std::uint64_t chunk = direct.next_chunk;
    const bool skipped = skips_own && chunk >= own.first && chunk < own.end;
    if (!direct.gathered && (!layout_.is_on_lane(chunk) || skipped)) {
      ++direct.next_chunk;
      continue;
    }
    // A barrier's byte is no entry: nothing that the backend finishes would bring it here again.
    if (op.spec.collective != Collective::kBarrier && !has_place()) {
      has_more_ = true;
      return Given::kSome;
    }
    const ChunkSpan span = layout_.span_of(op, direct);
    if (!give_next(op, direct, span)) return Given::kFailed;
    if (direct.next_element < span.elements) continue;
    ++direct.next_chunk;
    direct.next_element = 0;
  }
  return Given::kAll;
}

/// One entry of a chunk; next_element goes on by what it does.
bool DirectFolds::give_next(const Op& op, DirectOp& direct, const ChunkSpan& span) noexcept {
  if (direct.phase == DirectOp::Phase::kFold) {
    require(free_count_ > 0, "there are as many rows of sources as entries");
    const std::uint16_t row = free_[free_count_ - 1];
    const reduce::Entry entry = fold_entry(op, direct, span, row);
    if (!at_once_) --free_count_;
    return give(entry, direct, static_cast<std::uint16_t>(row + 1));
  }
  direct.next_element = span.elements;
  if (direct.phase == DirectOp::Phase::kStore) {
    return give(store_entry(op, span, layout_.memory_of_chunk(op, direct)), direct, 0);
  }
  std::byte* const to = layout_.memory_of_chunk(op, direct);
  if (op.spec.collective == Collective::kBarrier) {
    *to = std::byte{0};
    return true;
  }
  return give(load_entry(op, span, to), direct, 0);
}

/// @param sources  of a fold: its row, counted from 1.
bool DirectFolds::give(const reduce::Entry& entry, DirectOp& op, std::uint16_t sources) noexcept {
  if (at_once_) {
    const profile::Stage stage(profile::StageId::kReduce);
    return folds_.backend().run(entry);
  }
  FoldWork& work = folds_.take();
  work.role = FoldWork::Role::kDirect;
  work.sources = sources;
  work.chunk.id.op_seq = op.op_seq;
  ++op.in_backend;
  ++in_backend_;
  folds_.entry() = entry;
  folds_.add(work);
  return true;
}

reduce::Entry DirectFolds::load_entry(const Op& op, const ChunkSpan& span,
                                      std::byte* to) const noexcept {
  const ChunkMemory memory = memory_of(op.spec, span, config_.member_count, config_.processes());
  const bool reduced = reduces(op.spec.collective);
  reduce::Entry load;
  load.kind = reduce::Kind::kLoad;
  if (reduced && direct::is_wide(config_.shape_group(), op.spec.datatype)) {
    load.kind = reduce::Kind::kLoadWide;
  }
  load.datatype = op.spec.datatype;
  load.redop = op.spec.redop;
  load.member_count = memory.input_count;
  load.count = span.elements;
  load.packet = to;
  load.inputs = memory.inputs;
  load.factors = reduced ? op.spec.factors : nullptr;
  load.offset_bytes = memory.first_input * element_bytes(op.spec.datatype);
  return load;
}

reduce::Entry DirectFolds::store_entry(const Op& op, const ChunkSpan& span,
                                       std::byte* from) const noexcept {
  const ChunkMemory memory = memory_of(op.spec, span, config_.member_count, config_.processes());
  reduce::Entry entry;
  entry.kind = reduce::Kind::kStore;
  entry.datatype = op.spec.datatype;
  entry.member_count = memory.output_count;
  entry.count = span.elements;
  entry.packet = from;
  entry.inputs = op.spec.inputs.data();
  entry.outputs = memory.outputs;
  entry.offset_bytes = memory.first_output * element_bytes(op.spec.datatype);
  return entry;
}

/// What of a chunk starts at one rank. In an all-reduce the ring's segments say at which, however
/// it is cut here.
reduce::Entry DirectFolds::fold_entry(const Op& op, DirectOp& direct, const ChunkSpan& span,
                                      std::uint16_t row) noexcept {
  const std::uint32_t width = element_bytes(op.spec.datatype);
  const std::uint32_t wide = layout_.part_width(op.spec.datatype);
  const bool to_all = direct.steps.to_all || direct.gathered;
  const bool by_segment = op.spec.collective == Collective::kAllReduce &&
                          (to_all || !planted(PlantedBug::kTwoStepInOwnersOrder));
  const std::uint64_t chunk = direct.next_chunk;
  const std::uint64_t ahead = direct.next_element;
  const std::uint64_t at = span.first_element + ahead;
  std::uint64_t until = span.first_element + span.elements;
  std::uint64_t first = config_.rank + 1u;
  if (by_segment) {
    const std::uint64_t segment =
        Partition(op.spec.count, op.spec.datatype, config_.nranks, config_.payload_bytes)
            .segment_elements();
    first = at / segment;
    until = std::min(until, (first + 1) * segment);
  }
  if (planted(PlantedBug::kFoldInArrivalOrder)) first = direct.first_source;
  if (planted(PlantedBug::kGatheredInOwnOrder) && direct.gathered) first = config_.rank;
  const std::byte** const sources = &sources_[std::size_t{row} * config_.nranks];
  const std::uint64_t place =
      to_all ? ops_.index_of(chunk) * config_.payload_bytes : layout_.part_place(direct, chunk);
  for (std::uint32_t h = 0; h < config_.nranks; ++h) {
    const auto rank = static_cast<std::uint16_t>((first + h) % config_.nranks);
    const std::byte* part = rank == config_.rank && !to_all ? layout_.own_part(direct, chunk)
                                                            : direct.part_of(rank) + place;
    sources[h] = part + ahead * wide;
  }
  const ChunkMemory memory = memory_of(op.spec, span, config_.member_count, config_.processes());
  reduce::Entry entry;
  entry.kind = reduce::Kind::kFoldInOrder;
  entry.datatype = op.spec.datatype;
  entry.redop = op.spec.redop;
  entry.finalize = true;
  entry.wide = wide != width;
  entry.member_count = config_.member_count;
  entry.output_count = memory.output_count;
  entry.source_count = config_.nranks;
  entry.count = static_cast<std::uint32_t>(until - at);
  entry.divisor = config_.processes().count();
  entry.packet = direct.steps.from_owner ? layout_.sum(direct, chunk) + ahead * width : nullptr;
  entry.inputs = sources;
  entry.outputs = config_.folds_only() ? nullptr : memory.outputs;
  entry.output_shift_bytes = static_cast<std::int64_t>((memory.first_output + ahead) * width);
  direct.next_element += entry.count;
  return entry;
}

}  // namespace gradwire::collective
