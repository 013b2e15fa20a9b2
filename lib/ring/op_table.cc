// SPDX-License-Identifier: BSD-3-Clause
#include "ring/op_table.h"

#include <algorithm>

namespace gradwire::ring {
namespace {

/// Three bitmaps per op; each op may waste the rest of a word in each, and one op's length may be
/// skipped where the ring of words wraps.
std::size_t words_needed(std::uint32_t max_active_ops, std::uint32_t max_chunks) {
  return 2 * 3 * (std::size_t{max_chunks} / 64 + 1) + 3 * std::size_t{max_active_ops};
}

}  // namespace

OpTable::OpTable(std::uint32_t max_active_ops, std::uint32_t max_chunks)
    : max_chunks_(max_chunks),
      slot_mask_(max_active_ops - 1),
      slots_(max_active_ops),
      descriptors_(kDescriptorsKept),
      words_(words_needed(max_active_ops, max_chunks)),
      words_of_slot_(max_active_ops) {}

std::uint64_t* OpTable::take_words(std::uint64_t words) noexcept {
  const std::uint64_t capacity = words_.size();
  const std::uint64_t to_end = capacity - words_head_;
  const std::uint64_t skipped = words > to_end ? to_end : 0;
  if (words_used_ + skipped + words > capacity) return nullptr;
  std::uint64_t* first = &words_[skipped != 0 ? 0 : words_head_];
  words_head_ = (words_head_ + skipped + words) % capacity;
  words_used_ += skipped + words;
  words_of_slot_[(posted_ + 1) & slot_mask_] = skipped + words;
  std::fill_n(first, words, 0);
  return first;
}

Op* OpTable::open(const OpSpec& spec, const Partition& partition,
                  std::uint64_t lane_chunk_count) noexcept {
  Op& op = slots_[spec.op_seq & slot_mask_];
  // A slot comes free with the oldest unfinished op, so that words come back in order.
  if (spec.op_seq != posted_ + 1 || posted_ - done_ > slot_mask_) return nullptr;
  const std::uint64_t bitmap_words = (lane_chunk_count + 63) / 64;
  words_of_slot_[spec.op_seq & slot_mask_] = 0;
  std::uint64_t* words = nullptr;
  if (bitmap_words != 0) {
    words = take_words(3 * bitmap_words);
    if (words == nullptr) return nullptr;
  }
  op = Op{};
  op.state = Op::State::kActive;
  op.spec = spec;
  op.partition = partition;
  op.bitmap_words = bitmap_words;
  op.reduced = words;
  op.gathered = words + bitmap_words;
  op.spilled = words + 2 * bitmap_words;
  descriptors_[spec.op_seq % kDescriptorsKept] = OpDescriptor{spec.op_seq, call_of(spec)};
  posted_ = spec.op_seq;
  return &op;
}

void OpTable::close(Op& op) noexcept {
  op.state = Op::State::kDone;
  release_done();
}

void OpTable::release_done() noexcept {
  while (done_ < posted_ && slots_[(done_ + 1) & slot_mask_].state == Op::State::kDone) {
    ++done_;
    words_used_ -= words_of_slot_[done_ & slot_mask_];
    if (words_used_ == 0) words_head_ = 0;
  }
}

}  // namespace gradwire::ring
