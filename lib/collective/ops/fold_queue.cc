// SPDX-License-Identifier: BSD-3-Clause
#include "collective/ops/fold_queue.h"

#include <algorithm>
#include <span>

#include "base/require.h"

namespace gradwire::collective {

FoldQueue::FoldQueue(std::unique_ptr<reduce::Backend> backend, std::uint32_t places,
                     std::uint32_t batch_entries)
    : backend_(std::move(backend)),
      places_(places),
      batch_entries_(batch_entries),
      at_once_(batch_entries == 1 && backend_->runs_at_once()),
      works_(places),
      free_(places),
      batch_(places) {
  for (std::uint32_t i = places; i-- > 0;) free_[free_count_++] = &works_[i];
}

bool FoldQueue::is_spilling(std::uint64_t op_seq, std::uint32_t chunk) const noexcept {
  return std::any_of(works_.begin(), works_.end(), [&](const FoldWork& work) {
    return work.spill && work.chunk.id.op_seq == op_seq && work.chunk.id.chunk == chunk;
  });
}

bool FoldQueue::add(FoldWork& work) noexcept {
  require(batch_count_ < places_, "a batch has room for an entry of each place");
  reduce::Entry& entry = batch_[batch_count_];
  entry.cookie = place_of(work);
  ++batch_count_;
  if (batch_count_ < batch_entries_ && batch_count_ < places_) return false;
  submit();
  return true;
}

void FoldQueue::submit() noexcept {
  if (batch_count_ == 0) return;
  const profile::Stage stage(profile::StageId::kReduce);
  const std::size_t taken =
      backend_->submit(std::span<const reduce::Entry>(batch_.data(), batch_count_));
  require(taken <= batch_count_, "a backend takes no more entries than it was given");
  std::copy(batch_.begin() + static_cast<std::ptrdiff_t>(taken),
            batch_.begin() + static_cast<std::ptrdiff_t>(batch_count_), batch_.begin());
  batch_count_ -= taken;
}

bool FoldQueue::pop(Folded& out) noexcept {
  if (next_done_ == done_count_) {
    next_done_ = done_count_ = 0;
    done_count_ = backend_->poll(done_);
    require(done_count_ <= done_.size(), "a backend tells of no more than there is room for");
    if (done_count_ == 0) return false;
  }
  const reduce::Completion& done = done_[next_done_++];
  require(done.cookie < places_, "a backend gives back the cookies that it was given");
  out = Folded{&works_[done.cookie], done.ok, done.crc};
  return true;
}

void FoldQueue::drop_waiting() noexcept {
  for (std::size_t i = 0; i < batch_count_; ++i) {
    FoldWork& work = works_[batch_[i].cookie];
    if (work.chunk.mbuf != nullptr) rte_pktmbuf_free(work.chunk.mbuf);
    release(work);
  }
  batch_count_ = 0;
}

}  // namespace gradwire::collective
