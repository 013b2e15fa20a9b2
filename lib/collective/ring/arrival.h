// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// What a chunk that arrives is to this rank, by its op's claims and shape. It changes nothing.
#pragma once

#include <cstdint>

#include "base/planted_bug.h"
#include "collective/ops/fold_queue.h"
#include "collective/ops/op_table.h"

namespace gradwire::collective {

enum class Arrival : std::uint8_t { kReducing, kGathering, kDuplicate, kBad };

/// What classify() found out about a chunk. It looks first whether the next one is of the same
/// segment: a site is of one op.
struct Site {
  SegmentSpan segment;
  Place place;  ///< of all chunks of the segment
  ChunkSpan span;
  std::uint64_t index = 0;  ///< among the chunks of this lane
};

/// Whether this rank's part has gone out. A sum that comes round before that would overwrite a
/// contribution that has not been read.
[[nodiscard]] inline bool went_out(const FoldQueue& folds, const Op& op, const Site& site,
                                   std::uint32_t chunk) noexcept {
  if (!site.place.originates && !site.place.gets_reducing) return true;  // it adds nothing
  if (site.place.originates) return chunk < op.own_next;
  return test_bit(op.reduced, site.index) && !test_bit(op.spilled, site.index) &&
         !(op.spills_pending > 0 && folds.is_spilling(op.spec.op_seq, chunk));
}

/// `chunk` < op.partition.total_chunks().
[[gnu::always_inline]] inline void find_segment(const Op& op, std::uint64_t chunk,
                                                Site& site) noexcept {
  if (site.segment.has(chunk)) return;
  site.segment = op.partition.segment_around(chunk);
  site.place = place_of(op.shape, op.route, site.segment.segment);
}

/// @param site  set unless the chunk is bad.
[[nodiscard, gnu::always_inline]] inline Arrival classify(const OpTable& ops,
                                                          const FoldQueue& folds, const Op& op,
                                                          const wire::DataHeader& header,
                                                          Site& site) noexcept {
  const std::uint64_t index = ops.index_of(header.chunk);
  if (header.chunk >= op.partition.total_chunks() || ops.chunk_of(index) != header.chunk) {
    return Arrival::kBad;
  }
  find_segment(op, header.chunk, site);
  site.span = op.partition.span_in(site.segment, header.chunk);
  if (header.count != site.span.elements) return Arrival::kBad;
  site.index = index;
  const Place& place = site.place;
  if (place.gets_reducing && header.hop == place.reducing_hop) {
    return test_bit(op.reduced, index) && !planted(PlantedBug::kSkippedDuplicateCheck)
               ? Arrival::kDuplicate
               : Arrival::kReducing;
  }
  if (place.gets_gathering && header.hop == place.gathering_hop) {
    if (test_bit(op.gathered, index)) return Arrival::kDuplicate;
    return went_out(folds, op, site, header.chunk) ? Arrival::kGathering : Arrival::kBad;
  }
  return Arrival::kBad;
}

}  // namespace gradwire::collective
