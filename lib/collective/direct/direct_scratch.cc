// SPDX-License-Identifier: BSD-3-Clause
#include "collective/direct/direct_scratch.h"

#include <algorithm>

#include "base/planted_bug.h"
#include "base/require.h"

namespace gradwire::collective {

DirectScratch::DirectScratch(std::uint16_t nranks, std::uint64_t most_bytes, std::byte* memory)
    : nranks_(nranks),
      own_memory_(memory == nullptr ? 2 * most_bytes : 0),
      memory_(memory == nullptr ? own_memory_.data() : memory),
      memory_bytes_(2 * most_bytes),
      arrived_(std::size_t{kOps} * nranks),
      unsent_(std::size_t{kOps} * nranks),
      begun_(std::size_t{kOps} * nranks),
      since_(std::size_t{kOps} * nranks),
      expected_(std::size_t{kOps} * nranks),
      given_(std::size_t{kOps} * nranks) {}

bool DirectScratch::has_room(std::uint64_t bytes) const noexcept {
  const std::size_t to_end = memory_bytes_ - head_;
  return size() < kOps && used_ + (bytes > to_end ? to_end : 0) + bytes <= memory_bytes_;
}

DirectOp& DirectScratch::open(const Op& op, std::uint64_t bytes) noexcept {
  require(has_room(bytes), "a direct op is opened if there is scratch memory for it");
  const std::size_t to_end = memory_bytes_ - head_;
  const std::size_t skipped = bytes > to_end ? to_end : 0;
  const std::size_t at = bytes > to_end ? 0 : head_;
  DirectOp& direct = ops_[end_++ % kOps];
  direct.op_seq = op.spec.op_seq;
  direct.call = op.call;
  direct.partition = op.partition;
  direct.route = op.route;
  direct.gathered = op.shape == Shape::kGathered;
  direct.reach = 1;
  direct.steps = direct.gathered
                     ? direct::Steps{}
                     : direct::steps_of(op.spec.collective, op.shape == Shape::kTwoStep);
  direct.memory = memory_ + at;
  direct.taken = skipped + bytes;
  direct.stride = direct.segment = direct.owned = 0;
  direct.parts = direct.own_parts = direct.sums = nullptr;
  direct.missing_parts = direct.missing_sums = direct.unacked_ranks = 0;
  direct.first_source = nranks_;
  direct.to_fold = direct.loaded = direct.sums_ready = false;
  direct.phase = DirectOp::Phase::kLoad;
  direct.next_chunk = direct.next_element = 0;
  direct.in_backend = 0;
  require(at + bytes <= memory_bytes_, "scratch memory lies in its ring");
  head_ = at + bytes;
  touched_ = std::max(touched_, head_);
  used_ += direct.taken;
  std::fill_n(&arrived(direct, 0), nranks_, 0);
  std::fill_n(&unsent(direct, 0), nranks_, 0);
  std::fill_n(&begun(direct, 0), nranks_, 0);
  std::fill_n(&expected(direct, 0), nranks_, 0);
  std::fill_n(&given(direct, 0), nranks_, 0);
  return direct;
}

void DirectScratch::release() noexcept {
  const auto needed = [](const DirectOp& op) {
    return !op.done() ||
           (op.unacked_ranks > 0 && !planted(PlantedBug::kScratchFreedBeforeAcknowledged));
  };
  while (!empty() && !needed(ops_[first_ % kOps])) {
    require(used_ >= ops_[first_ % kOps].taken, "scratch memory comes back once");
    used_ -= ops_[first_ % kOps].taken;
    ++first_;
    if (used_ == 0) head_ = 0;
  }
}

void DirectScratch::clear() noexcept {
  require(end_ - first_ <= kOps, "there are no more direct ops than places");
  first_ = end_;
  head_ = used_ = 0;
}

DirectOp* DirectScratch::find(std::uint64_t op_seq) noexcept {
  for (std::uint64_t i = end_; i-- > first_;) {
    if (ops_[i % kOps].op_seq == op_seq) return &ops_[i % kOps];
  }
  return nullptr;
}

const DirectOp* DirectScratch::first_above(std::uint64_t op_seq) const noexcept {
  for (std::uint64_t i = first_; i < end_; ++i) {
    if (ops_[i % kOps].op_seq > op_seq) return &ops_[i % kOps];
  }
  return nullptr;
}

const DirectOp* DirectScratch::first_to(std::uint16_t rank, std::uint64_t op_seq) const noexcept {
  for (std::uint64_t i = first_; i < end_; ++i) {
    const DirectOp& op = ops_[i % kOps];
    if (op.op_seq > op_seq && given(op, rank) != 0) return &op;
  }
  return nullptr;
}

std::uint64_t DirectScratch::received_from(std::uint16_t rank,
                                           std::uint64_t posted) const noexcept {
  for (std::uint64_t i = first_; i < end_; ++i) {
    const DirectOp& op = ops_[i % kOps];
    if (arrived(op, rank) != expected(op, rank)) return op.op_seq - 1;
  }
  return posted;
}

}  // namespace gradwire::collective
