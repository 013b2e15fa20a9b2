// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// How an op's elements fall into segments and chunks: a segment is a rank's share of the whole, or
/// the block of a process. It depends on the count, the datatype, the
/// number of segments and the payload size alone, so that every rank comes to the same answer.
/// Which of them come to a rank, and go where, the op's shape says (collective/shapes/shape.h). Any
/// thread; pure arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/types.h"

namespace gradwire::collective {

/// Where a chunk lies in its op.
struct ChunkSpan {
  std::uint64_t first_element = 0;
  std::uint32_t elements = 0;
  std::uint16_t segment = 0;
  std::uint16_t unused = 0;  ///< so that it is copied in whole words
};

/// A segment and its chunks: [first_chunk, end_chunk) of the op's.
struct SegmentSpan {
  std::uint64_t first_chunk = 0;
  std::uint64_t end_chunk = 0;
  std::uint64_t first_element = 0;
  std::uint64_t end_element = 0;
  std::uint16_t segment = 0;

  [[nodiscard]] bool has(std::uint64_t chunk) const noexcept {
    return chunk >= first_chunk && chunk < end_chunk;
  }
};

/// A segment is cut into chunks of payload_bytes, so no chunk crosses segments; chunk indexes run
/// through the segments, so those that exist are 0 ... total_chunks()-1.
class Partition {
 public:
  Partition() = default;
  /// Segments of ceil(count/nranks) elements, rounded up to 64 bytes; later ones may be short or
  /// empty. `payload_bytes` is a multiple of 64, so that no element crosses chunks.
  Partition(std::uint64_t count, DataType datatype, std::uint16_t nranks,
            std::uint32_t payload_bytes) noexcept
      : Partition(count, datatype, rounded_share(count, datatype, nranks), payload_bytes, Exact{}) {
  }
  /// A segment of exactly `count` elements for each of `blocks` processes, 65,536 at most.
  [[nodiscard]] static Partition of_blocks(std::uint32_t blocks, std::uint64_t count,
                                           DataType datatype,
                                           std::uint32_t payload_bytes) noexcept {
    return Partition(blocks * count, datatype, count, payload_bytes, Exact{});
  }

  [[nodiscard]] std::uint32_t element_bytes() const noexcept { return element_bytes_; }
  [[nodiscard]] std::uint64_t total_chunks() const noexcept { return total_chunks_; }
  [[nodiscard]] std::uint64_t chunks_per_segment() const noexcept { return chunks_per_segment_; }
  [[nodiscard]] std::uint64_t segment_elements() const noexcept { return segment_elements_; }
  [[nodiscard]] std::uint16_t segment_of(std::uint64_t chunk) const noexcept {
    return span_of(chunk).segment;
  }
  /// All of it by one division; `chunk` < total_chunks().
  [[nodiscard]] ChunkSpan span_of(std::uint64_t chunk) const noexcept {
    return span_in(segment_around(chunk), chunk);
  }
  /// For a chunk that the segment has(), without the division.
  [[nodiscard]] ChunkSpan span_in(const SegmentSpan& segment, std::uint64_t chunk) const noexcept {
    ChunkSpan span;
    span.first_element = segment.first_element + (chunk - segment.first_chunk) * chunk_elements_;
    span.elements = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(chunk_elements_, segment.end_element - span.first_element));
    span.segment = segment.segment;
    return span;
  }
  /// The one that has the chunk; `chunk` < total_chunks().
  [[nodiscard]] SegmentSpan segment_around(std::uint64_t chunk) const noexcept {
    const std::uint64_t index = chunk / chunks_per_segment_;
    SegmentSpan segment;
    segment.first_chunk = index * chunks_per_segment_;
    segment.end_chunk = std::min(segment.first_chunk + chunks_per_segment_, total_chunks_);
    segment.first_element = index * segment_elements_;
    segment.end_element = std::min(segment.first_element + segment_elements_, count_);
    segment.segment = static_cast<std::uint16_t>(index);
    return segment;
  }
  /// First element of the chunk in the op.
  [[nodiscard]] std::uint64_t first_element(std::uint64_t chunk) const noexcept {
    return span_of(chunk).first_element;
  }
  [[nodiscard]] std::uint32_t elements(std::uint64_t chunk) const noexcept {
    return span_of(chunk).elements;
  }
  [[nodiscard]] std::uint64_t byte_offset(std::uint64_t chunk) const noexcept {
    return first_element(chunk) * element_bytes_;
  }
  /// Chunks of `segment` that exist are [first_chunk, end_chunk).
  [[nodiscard]] std::uint64_t first_chunk(std::uint64_t segment) const noexcept {
    return std::min(segment * chunks_per_segment_, total_chunks_);
  }
  [[nodiscard]] std::uint64_t end_chunk(std::uint64_t segment) const noexcept {
    return first_chunk(segment + 1);
  }

 private:
  struct Exact {};
  Partition(std::uint64_t count, DataType datatype, std::uint64_t segment_elements,
            std::uint32_t payload_bytes, Exact) noexcept
      : count_(count),
        element_bytes_(gradwire::element_bytes(datatype)),
        segment_elements_(segment_elements),
        chunk_elements_(payload_bytes / element_bytes_),
        chunks_per_segment_((segment_elements + chunk_elements_ - 1) / chunk_elements_) {
    if (count_ == 0) return;
    const std::uint64_t full = count_ / segment_elements_;
    const std::uint64_t rest = count_ % segment_elements_;
    total_chunks_ = full * chunks_per_segment_ + (rest + chunk_elements_ - 1) / chunk_elements_;
  }
  [[nodiscard]] static std::uint64_t rounded_share(std::uint64_t count, DataType datatype,
                                                   std::uint16_t nranks) noexcept {
    const std::uint64_t per_line = 64 / gradwire::element_bytes(datatype);
    const std::uint64_t even = count / nranks + (count % nranks != 0 ? 1 : 0);
    return (even + per_line - 1) / per_line * per_line;
  }

  std::uint64_t count_ = 0;
  std::uint32_t element_bytes_ = 1;
  std::uint64_t segment_elements_ = 0;
  std::uint64_t chunk_elements_ = 1;
  std::uint64_t chunks_per_segment_ = 1;
  std::uint64_t total_chunks_ = 0;
};

/// How many of the chunks [first, end) fall to `lane`: chunk c goes to lane c % lanes.
[[nodiscard]] constexpr std::uint64_t chunks_on_lane(std::uint64_t first, std::uint64_t end,
                                                     std::uint8_t lane,
                                                     std::uint8_t lanes) noexcept {
  const auto below = [&](std::uint64_t n) { return (n + lanes - 1 - lane) / lanes; };
  return below(end) - below(first);
}

}  // namespace gradwire::collective
