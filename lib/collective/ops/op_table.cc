// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ops/op_table.h"

#include <algorithm>

#include "base/planted_bug.h"
#include "base/require.h"

namespace gradwire::collective {
namespace {

/// Three bitmaps per op. Each may waste the rest of a word, and as many words as one op has may be
/// skipped at the end of the ring.
std::size_t words_needed(std::uint32_t max_active_ops, std::uint32_t max_chunks) {
  return 2 * 3 * (std::size_t{max_chunks} / 64 + 1) + 3 * std::size_t{max_active_ops};
}

}  // namespace

OpTable::OpTable(std::uint32_t max_active_ops, std::uint32_t max_chunks, std::uint8_t lane,
                 std::uint8_t lanes)
    : max_chunks_(max_chunks),
      lane_(lane),
      lanes_(lanes),
      inverse_(lanes == 1 ? 0 : ~std::uint64_t{0} / lanes + 1),
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
  require(first + words <= words_.data() + capacity, "the bitmaps of an op lie in one piece");
  words_head_ = (words_head_ + skipped + words) % capacity;
  words_used_ += skipped + words;
  words_of_slot_[(posted_ + 1) & slot_mask_] = skipped + words;
  std::fill_n(first, words, 0);
  return first;
}

Op* OpTable::open(const OpSpec& spec, const OpPlan& plan) noexcept {
  Op& op = slots_[spec.op_seq & slot_mask_];
  // A slot comes free with the oldest unfinished op, so that words come back in order.
  if (spec.op_seq != posted_ + 1 || posted_ - done_ > slot_mask_) return nullptr;
  const std::uint64_t bitmap_words = (plan.lane_chunks + 63) / 64;
  words_of_slot_[spec.op_seq & slot_mask_] = 0;
  std::uint64_t* words = nullptr;
  if (bitmap_words != 0) {
    words = take_words(3 * bitmap_words);
    if (words == nullptr) return nullptr;
  }
  op = Op{};
  op.state = Op::State::kActive;
  op.spec = spec;
  op.call = call_of(spec);
  op.partition = plan.partition;
  op.shape = plan.shape;
  op.rules = plan.rules;
  op.route = plan.route;
  op.admitted = !plan.rules.waits_for_all;
  op.keeps_own = op.rules.folds_over_own && spec.inputs[0] == spec.outputs[0];
  op.arrivals_left = plan.arrivals;
  op.own_next = plan.own.first;
  op.own_end = plan.own.end;
  op.bitmap_words = bitmap_words;
  op.reduced = words;
  op.gathered = words + bitmap_words;
  op.spilled = words + 2 * bitmap_words;
  op.unagreed = plan.rules.compares;
  const std::uint64_t before = digest(spec.op_seq - 1).value_or(0);
  descriptors_[spec.op_seq % kDescriptorsKept] =
      OpDescriptor{spec.op_seq, wire::digest_of(before, said_of(spec.op_seq, 0, op.call)), op.call};
  posted_ = spec.op_seq;
  require(posted_ - done_ <= slot_mask_ + 1, "each unfinished op has a slot of its own");
  return &op;
}

void OpTable::close(Op& op) noexcept {
  require(op.state == Op::State::kActive && op.finished(), "an op is closed once, and finished");
  op.state = Op::State::kDone;
  release_done();
}

bool OpTable::skip_to(std::uint64_t op_seq) noexcept {
  if (op_seq <= posted_) return true;
  if (posted_ == done_) {
    posted_ = done_ = op_seq;
    return true;
  }
  if (op_seq - done_ > slot_mask_) return false;
  while (posted_ < op_seq) {
    Op& op = slots_[++posted_ & slot_mask_];
    op = Op{};
    op.state = Op::State::kDone;
    op.spec.op_seq = posted_;
    words_of_slot_[posted_ & slot_mask_] = 0;
  }
  return true;
}

void OpTable::release_done() noexcept {
  while (done_ < posted_ && slots_[(done_ + 1) & slot_mask_].state == Op::State::kDone) {
    ++done_;
    require(words_used_ >= words_of_slot_[done_ & slot_mask_],
            "the bitmaps of an op come back once");
    words_used_ -= words_of_slot_[done_ & slot_mask_];
    if (words_used_ == 0) words_head_ = 0;
  }
}

bool OpTable::waits_for_own(const wire::DataHeader& header) const noexcept {
  const Op* op = find(header.op_seq);
  // Nothing of an early packet was checked but its op_seq.
  return op != nullptr && op->keeps_own && header.chunk < op->partition.total_chunks() &&
         header.chunk % lanes_ == lane_ && !test_bit(op->gathered, index_of(header.chunk));
}

Op* OpTable::next_own() noexcept {
  own_op_ = std::max(own_op_, done_ + 1);
  for (; own_op_ <= posted_; ++own_op_) {
    Op* op = find(own_op_);
    if (op != nullptr && op->own_next < op->own_end) return op;
  }
  return nullptr;
}

const Op* OpTable::peek_own() const noexcept {
  for (std::uint64_t op_seq = std::max(own_op_, done_ + 1); op_seq <= posted_; ++op_seq) {
    const Op* op = find(op_seq);
    if (op != nullptr && op->own_next < op->own_end) return op;
  }
  return nullptr;
}

void OpTable::add_spilled(Op& op, std::uint64_t index) noexcept {
  require(!test_bit(op.spilled, index) || planted(PlantedBug::kSkippedDuplicateCheck),
          "a chunk is spilled once at a time");
  set_bit(op.spilled, index);
  op.spill_cursor = std::min(op.spill_cursor, index);
  ++op.spilled_left;
  ++spilled_;
}

const Op* OpTable::oldest_spilled() const noexcept {
  if (spilled_ == 0) return nullptr;
  for (std::uint64_t op_seq = done_ + 1; op_seq <= posted_; ++op_seq) {
    const Op* op = find(op_seq);
    if (op != nullptr && op->spilled_left > 0) return op;
  }
  return nullptr;
}

Op* OpTable::next_spilled(std::uint64_t from) noexcept {
  if (spilled_ == 0) return nullptr;
  for (std::uint64_t op_seq = std::max(from, done_ + 1); op_seq <= posted_; ++op_seq) {
    Op* op = find(op_seq);
    if (op != nullptr && op->spilled_left > 0) return op;
  }
  return nullptr;
}

std::uint64_t OpTable::first_spilled(Op& op) noexcept {
  std::uint64_t word = op.spill_cursor >> 6;
  while (word < op.bitmap_words && op.spilled[word] == 0) ++word;
  require(word < op.bitmap_words, "an op that counts spilled chunks has a bit for each");
  op.spill_cursor = word * 64 + static_cast<std::uint64_t>(__builtin_ctzll(op.spilled[word]));
  return op.spill_cursor;
}

void OpTable::remove_spilled(Op& op, std::uint64_t index) noexcept {
  require(test_bit(op.spilled, index) && op.spilled_left > 0 && spilled_ > 0,
          "a spilled chunk is sent once");
  clear_bit(op.spilled, index);
  --op.spilled_left;
  --spilled_;
}

}  // namespace gradwire::collective
