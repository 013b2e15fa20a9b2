// SPDX-License-Identifier: BSD-3-Clause
#include "ring_op.h"

namespace gradwire::perf {

StreamCursor::StreamCursor(const collective::Partition& partition, std::uint16_t sender,
                           std::uint16_t nranks, std::uint32_t lag) noexcept
    : partition_(&partition), sender_(sender), nranks_(nranks), lag_(lag) {
  if (partition.total_chunks() == 0) return;
  const std::uint64_t last_hop = 2u * nranks - 3;
  last_tick_ = partition.chunks_per_segment() - 1 + last_hop * lag;
  at_end_ = false;
  item_ = {static_cast<std::uint32_t>(last_hop), 0, 0};
  if (!settle()) advance();
}

bool StreamCursor::settle() noexcept {
  const std::uint64_t delay = std::uint64_t{item_.hop} * lag_;
  if (item_.tick < delay) return false;
  // The sender of hop h of segment s is rank s + h; nranks twice, since hops reach beyond nranks.
  const std::uint64_t segment = (sender_ + 2u * nranks_ - item_.hop) % nranks_;
  const std::uint64_t chunk = item_.tick - delay;
  item_.chunk = partition_->first_chunk(segment) + chunk;
  return chunk < partition_->chunks_per_segment() && item_.chunk < partition_->end_chunk(segment);
}

void StreamCursor::step() noexcept {
  if (item_.hop > 0) {
    --item_.hop;
  } else {
    item_.hop = 2u * nranks_ - 3;
    at_end_ = ++item_.tick > last_tick_;
  }
}

void StreamCursor::advance() noexcept {
  do {
    step();
  } while (!at_end_ && !settle());
}

bool StreamCursor::is_past(std::uint64_t tick, std::uint32_t hop) const noexcept {
  if (at_end_ || item_.tick != tick) return at_end_ || item_.tick > tick;
  return item_.hop < hop;
}

RingOp::RingOp(const OpSpec& spec, const RingShape& shape, std::span<std::byte> staging,
               Folder& folder) noexcept
    : spec_(spec),
      lag_(shape.lag),
      partition_(spec.count, spec.datatype, spec.nranks, shape.chunk_bytes),
      staging_(staging.data()),
      folder_(folder),
      sending_(partition_, spec.rank, spec.nranks, shape.lag),
      receiving_(partition_,
                 static_cast<std::uint16_t>((spec.rank + spec.nranks - 1) % spec.nranks),
                 spec.nranks, shape.lag) {}

std::size_t RingOp::bytes_of(std::uint64_t chunk) const noexcept {
  return std::size_t{partition_.elements(chunk)} * element_bytes(spec_.datatype);
}

StreamPiece RingOp::piece(const StreamItem& item) const noexcept {
  const bool reduces = item.hop < spec_.nranks - 1u;
  return {item.chunk, item.hop,
          reduces ? nullptr : spec_.output + partition_.byte_offset(item.chunk)};
}

std::span<const std::byte> RingOp::to_send() noexcept {
  if (sending_.at_end()) return {};
  const StreamItem& item = sending_.item();
  // A chunk sent at hop h arrived at hop h-1, `lag` ticks before.
  if (item.hop > 0 && !receiving_.is_past(item.tick - lag_, item.hop - 1)) return {};
  const std::byte* const from = item.hop == 0 ? spec_.input : spec_.output;
  return {from + partition_.byte_offset(item.chunk) + sent_bytes_,
          bytes_of(item.chunk) - sent_bytes_};
}

void RingOp::sent(std::size_t bytes) noexcept {
  sent_bytes_ += bytes;
  if (sent_bytes_ < bytes_of(sending_.item().chunk)) return;
  sent_bytes_ = 0;
  sending_.advance();
}

std::span<std::byte> RingOp::to_receive() noexcept {
  if (receiving_.at_end()) return {};
  const StreamPiece next = receiving();
  std::byte* const to = next.place == nullptr ? staging_ : next.place;
  return {to + received_bytes_, bytes_of(next.chunk) - received_bytes_};
}

void RingOp::received(std::size_t bytes) noexcept {
  const StreamItem& item = receiving_.item();
  received_bytes_ += bytes;
  if (received_bytes_ < bytes_of(item.chunk)) return;
  received_bytes_ = 0;
  if (item.hop < spec_.nranks - 1u) {
    const std::uint64_t offset = partition_.byte_offset(item.chunk);
    // The place in the output is free, because this rank's input is in the sum already.
    folder_.fold(spec_, staging_, spec_.input + offset, spec_.output + offset,
                 partition_.elements(item.chunk), item.hop == spec_.nranks - 2u);
  }
  receiving_.advance();
}

}  // namespace gradwire::perf
