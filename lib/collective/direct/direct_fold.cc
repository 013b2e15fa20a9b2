// SPDX-License-Identifier: BSD-3-Clause
// What the backend does for ops off the ring: phases, and their entries.
#include <algorithm>

#include "base/planted_bug.h"
#include "base/profile.h"
#include "collective/direct/direct.h"
#include "collective/ops/op_memory.h"

namespace gradwire::collective {

Direct::Progress Direct::advance(const Op& op, TimeNs now) noexcept {
  DirectOp* direct = scratch_.find(op.spec.op_seq);
  if (direct == nullptr || direct->done()) return Progress::kNone;
  if (direct->gathered) extend_reach(*direct, now);
  while (may_begin(*direct)) {
    const Given given = give_entries(op, *direct);
    if (given == Given::kFailed) return Progress::kFailed;
    if (given == Given::kSome || direct->in_backend > 0) return Progress::kNone;
    end_phase(*direct, now);
    if (!direct->done()) continue;
    scratch_.release();
    return Progress::kDone;
  }
  return Progress::kNone;
}

Direct::Progress Direct::on_folded(const FoldWork& work, const Op& op, TimeNs now) noexcept {
  DirectOp* direct = scratch_.find(op.spec.op_seq);
  require(direct != nullptr && direct->in_backend > 0 && in_backend_ > 0,
          "a direct op's memory stays as long as the backend has it");
  --direct->in_backend;
  --in_backend_;
  if (work.sources != 0) free_[free_count_++] = work.sources - 1;
  return advance(op, now);
}

void Direct::refill() noexcept {
  if (!has_more_) return;
  has_more_ = false;
  for (std::uint32_t i = 0; i < scratch_.size() && !has_more_; ++i) {
    DirectOp& direct = scratch_.at(i);
    const Op* op = ops_.find(direct.op_seq);
    if (op == nullptr || !may_begin(direct)) continue;
    require(give_entries(*op, direct) != Given::kFailed, "entries that wait fail later");
  }
}

bool Direct::may_begin(const DirectOp& op) const noexcept {
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

Direct::Chunks Direct::own_chunks(const DirectOp& op) const noexcept {
  const auto owned = direct::owned_by(op.route, config_.rank, segments_of(op.partition));
  return {op.partition.first_chunk(owned.first), op.partition.first_chunk(owned.end)};
}

Direct::Chunks Direct::chunks_of_phase(const DirectOp& op) const noexcept {
  const Chunks all{0, op.partition.total_chunks()};
  // It has neither inputs nor outputs.
  if (config_.folds_only() && op.phase != DirectOp::Phase::kFold) return {};
  if (op.gathered) {
    // An all-gather's are processes' blocks.
    const bool blocks = op.call.collective() == Collective::kAllGather;
    switch (op.phase) {
      case DirectOp::Phase::kLoad:
        return blocks ? Chunks{0, config_.member_count} : all;
      case DirectOp::Phase::kFold:
        return op.call.collective() == Collective::kAllReduce ? all : Chunks{};
      case DirectOp::Phase::kStore:
        return blocks ? Chunks{0, config_.processes().count()} : Chunks{};
      default:
        return {};
    }
  }
  switch (op.phase) {
    case DirectOp::Phase::kLoad:
      return op.steps.to_all || op.steps.to_owner ? all : own_chunks(op);
    case DirectOp::Phase::kFold:
      if (!op.to_fold) break;
      return op.steps.to_all ? all : own_chunks(op);
    case DirectOp::Phase::kStore:
      // A fold has stored what it made.
      if (!op.steps.from_owner || op.call.collective() == Collective::kBarrier) break;
      if (!at_once_) return all;
      if (op.steps.to_owner) break;
      return own_chunks(op);
    case DirectOp::Phase::kSums:
    case DirectOp::Phase::kDone:
      break;
  }
  return {};
}

void Direct::begin(DirectOp& op, DirectOp::Phase phase) noexcept {
  op.phase = phase;
  op.next_chunk = chunks_of_phase(op).first;
  op.next_element = 0;
}

void Direct::end_phase(DirectOp& op, TimeNs now) noexcept {
  const bool folded = op.phase == DirectOp::Phase::kFold && op.to_fold;
  const bool to_all =
      op.phase == DirectOp::Phase::kLoad ? !op.steps.to_owner : folded && op.steps.from_owner;
  if (to_all && !op.gathered) make_crcs(op);
  if (op.phase == DirectOp::Phase::kLoad) start_parts(op, now);
  if (folded) op.to_fold = false;
  if (folded && op.steps.from_owner) send_sums(op, now);
  begin(op, static_cast<DirectOp::Phase>(static_cast<std::uint8_t>(op.phase) + 1));
}

/// Of what goes to all.
void Direct::make_crcs(DirectOp& op) const noexcept {
  const bool to_all = op.steps.to_all;
  const auto [first, end] = to_all ? chunks_of_phase(op) : own_chunks(op);
  const std::uint32_t width = to_all ? part_width(op.call.datatype()) : sum_width(op);
  for (std::uint64_t chunk = first; chunk < end; ++chunk) {
    if (!is_on_lane(chunk)) continue;
    const std::byte* bytes = to_all ? where_loaded(op, chunk) : sum(op, chunk);
    op.crcs[to_all ? ops_.index_of(chunk) : chunk - first] =
        wire::crc32c({bytes, op.partition.elements(chunk) * std::size_t{width}});
  }
}

Direct::Given Direct::give_entries(const Op& op, DirectOp& direct) noexcept {
  const std::uint64_t end = chunks_of_phase(direct).end;
  const Chunks own = own_chunks(direct);
  const bool skips_own = direct.phase == DirectOp::Phase::kStore && direct.steps.to_owner;
  while (direct.next_chunk < end) {
    const std::uint64_t chunk = direct.next_chunk;
    const bool skipped = skips_own && chunk >= own.first && chunk < own.end;
    if (!direct.gathered && (!is_on_lane(chunk) || skipped)) {
      ++direct.next_chunk;
      continue;
    }
    // A barrier's byte is no entry: nothing that the backend finishes would bring it here again.
    if (op.spec.collective != Collective::kBarrier && !has_place()) {
      has_more_ = true;
      return Given::kSome;
    }
    const ChunkSpan span = span_of(op, direct);
    if (!give_next(op, direct, span)) return Given::kFailed;
    if (direct.next_element < span.elements) continue;
    ++direct.next_chunk;
    direct.next_element = 0;
  }
  return Given::kAll;
}

/// One entry of a chunk; next_element goes on by what it does.
bool Direct::give_next(const Op& op, DirectOp& direct, const ChunkSpan& span) noexcept {
  if (direct.phase == DirectOp::Phase::kFold) {
    require(free_count_ > 0, "there are as many rows of sources as entries");
    const std::uint16_t row = free_[free_count_ - 1];
    const reduce::Entry entry = fold_entry(op, direct, span, row);
    if (!at_once_) --free_count_;
    return give(entry, direct, static_cast<std::uint16_t>(row + 1));
  }
  direct.next_element = span.elements;
  if (direct.phase == DirectOp::Phase::kStore) {
    return give(store_entry(op, span, memory_of_chunk(op, direct)), direct, 0);
  }
  std::byte* const to = memory_of_chunk(op, direct);
  if (op.spec.collective == Collective::kBarrier) {
    *to = std::byte{0};
    return true;
  }
  return give(load_entry(op, span, to), direct, 0);
}

ChunkSpan Direct::span_of(const Op& op, const DirectOp& direct) const noexcept {
  if (!direct.gathered || op.spec.collective != Collective::kAllGather) {
    return op.partition.span_of(direct.next_chunk);
  }
  const auto unit = static_cast<std::uint32_t>(direct.next_chunk);
  const GroupProcesses processes = config_.processes();
  const std::uint32_t first = processes.first_place(config_.rank);
  return block_of(op, direct.phase == DirectOp::Phase::kLoad ? first + unit : unit);
}

std::byte* Direct::memory_of_chunk(const Op& op, const DirectOp& direct) const noexcept {
  if (direct.gathered && op.spec.collective == Collective::kAllGather) {
    return block_at(op, direct, span_of(op, direct).segment);
  }
  if (direct.phase == DirectOp::Phase::kStore) return sum(direct, direct.next_chunk);
  return where_loaded(direct, direct.next_chunk);
}

/// @param sources  of a fold: its row, counted from 1.
bool Direct::give(const reduce::Entry& entry, DirectOp& op, std::uint16_t sources) noexcept {
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

std::byte* Direct::where_loaded(const DirectOp& op, std::uint64_t chunk) const noexcept {
  if (op.gathered) return op.parts;
  if (op.steps.to_all) {
    const std::uint64_t index = ops_.index_of(chunk);
    require(index * config_.payload_bytes +
                    op.partition.elements(chunk) * part_width(op.call.datatype()) <=
                op.stride,
            "a rank's part fits its scratch memory");
    return op.part_of(config_.rank) + index * config_.payload_bytes;
  }
  return op.steps.to_owner ? own_part(op, chunk) : sum(op, chunk);
}

reduce::Entry Direct::load_entry(const Op& op, const ChunkSpan& span,
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

reduce::Entry Direct::store_entry(const Op& op, const ChunkSpan& span,
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
reduce::Entry Direct::fold_entry(const Op& op, DirectOp& direct, const ChunkSpan& span,
                                 std::uint16_t row) noexcept {
  const std::uint32_t width = element_bytes(op.spec.datatype);
  const std::uint32_t wide = part_width(op.spec.datatype);
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
      to_all ? ops_.index_of(chunk) * config_.payload_bytes : part_place(direct, chunk);
  for (std::uint32_t h = 0; h < config_.nranks; ++h) {
    const auto rank = static_cast<std::uint16_t>((first + h) % config_.nranks);
    const std::byte* part =
        rank == config_.rank && !to_all ? own_part(direct, chunk) : direct.part_of(rank) + place;
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
  entry.packet = direct.steps.from_owner ? sum(direct, chunk) + ahead * width : nullptr;
  entry.inputs = sources;
  entry.outputs = config_.folds_only() ? nullptr : memory.outputs;
  entry.output_shift_bytes = static_cast<std::int64_t>((memory.first_output + ahead) * width);
  direct.next_element += entry.count;
  return entry;
}

}  // namespace gradwire::collective
