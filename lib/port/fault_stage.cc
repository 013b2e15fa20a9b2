// SPDX-License-Identifier: BSD-3-Clause
#include "port/fault_stage.h"

#include <algorithm>

#include "base/counter.h"

namespace gradwire::port {

namespace {

/// @return `probability` scaled to 2^64.
std::uint64_t share(double probability) noexcept {
  constexpr double kWhole = 18446744073709551616.0;  // 2^64
  if (probability >= 1) return UINT64_MAX;
  return probability <= 0 ? 0 : static_cast<std::uint64_t>(probability * kWhole);
}

}  // namespace

void FaultStage::configure(const FaultSettings& settings) noexcept {
  drop_ = share(settings.drop);
  duplicate_ = share(settings.duplicate);
  reorder_ = share(settings.reorder);
  corrupt_ = share(settings.corrupt);
  delay_ = share(settings.delay);
  reorder_frames_ = std::max<std::uint32_t>(settings.reorder_frames, 1);
  delay_ns_ = static_cast<TimeNs>(settings.delay_us) * 1'000;
  active_ = settings.active();
  state_ = settings.seed;
  state_ = draw() ^ salt_;
}

/// splitmix64 (G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators",
/// 2014): one word of state, and each seed is as good as any other.
std::uint64_t FaultStage::draw() noexcept {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::span<rte_mbuf* const> FaultStage::pass(std::span<rte_mbuf* const> arrived,
                                            TimeNs now) noexcept {
  out_count_ = 0;
  release_due(now);
  for (rte_mbuf* frame : arrived.first(std::min(arrived.size(), kBurst))) {
    if (active_) {
      take(frame, now);
    } else {
      give(frame);
    }
    if (held_count_ != 0) overtaken();
  }
  count(counters_.held, held_count_ - counters_.held);
  return {out_.data(), out_count_};
}

void FaultStage::release_due(TimeNs now) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < held_count_; ++i) {
    if (held_[i].due <= now) {
      give(held_[i].frame);
    } else {
      held_[kept++] = held_[i];
    }
  }
  held_count_ = kept;
}

/// Counts one more frame that has passed the frames that wait to be overtaken.
void FaultStage::overtaken() noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < held_count_; ++i) {
    Held held = held_[i];
    if (held.overtakers == 1) {
      give(held.frame);
      continue;
    }
    if (held.overtakers > 1) --held.overtakers;
    held_[kept++] = held;
  }
  held_count_ = kept;
}

void FaultStage::take(rte_mbuf* frame, TimeNs now) noexcept {
  count(counters_.frames);
  const std::uint64_t drop = draw();
  const std::uint64_t duplicate = draw();
  const std::uint64_t corrupt = draw();
  const std::uint64_t reorder = draw();
  const std::uint64_t delay = draw();
  const std::uint64_t where = draw();
  if (drop < drop_) {
    count(counters_.dropped);
    rte_pktmbuf_free(frame);
    return;
  }
  // The CPU neither copies nor changes a payload in a GPU's memory.
  const bool whole = frame->nb_segs == 1;
  if (whole && duplicate < duplicate_) {
    // It copies the bytes, because the lane writes into the mbufs it receives.
    if (rte_mbuf* copy = rte_pktmbuf_copy(frame, frame->pool, 0, UINT32_MAX); copy != nullptr) {
      count(counters_.duplicated);
      give(copy);
    } else {
      count(counters_.no_mbuf);
    }
  }
  if (whole && corrupt < corrupt_) frame = corrupted(frame, where);
  if (delay < delay_ && hold(frame, now + delay_ns_, 0)) {
    count(counters_.delayed);
    return;
  }
  // The first frame counted is the held frame itself, hence one more.
  const auto overtakers = static_cast<std::uint32_t>(2 + where % reorder_frames_);
  if (reorder < reorder_ && hold(frame, now + kOvertakeNs, overtakers)) {
    count(counters_.reordered);
    return;
  }
  give(frame);
}

bool FaultStage::hold(rte_mbuf* frame, TimeNs due, std::uint32_t overtakers) noexcept {
  if (held_count_ == kHeld) {
    count(counters_.passed_full);
    return false;
  }
  held_[held_count_++] = {frame, due, overtakers};
  return true;
}

/// Flips one bit of `frame`, or of a copy if others share it.
rte_mbuf* FaultStage::corrupted(rte_mbuf* frame, std::uint64_t random) noexcept {
  if (!exclusive_ && (rte_mbuf_refcnt_read(frame) != 1 || !RTE_MBUF_DIRECT(frame))) {
    rte_mbuf* copy = rte_pktmbuf_copy(frame, frame->pool, 0, UINT32_MAX);
    if (copy == nullptr) {
      count(counters_.no_mbuf);
      return frame;
    }
    rte_pktmbuf_free(frame);
    frame = copy;
  }
  const std::uint64_t bits = std::uint64_t{rte_pktmbuf_data_len(frame)} * 8;
  if (bits == 0) return frame;
  const std::uint64_t bit = random % bits;
  rte_pktmbuf_mtod(frame, std::uint8_t*)[bit / 8] ^= static_cast<std::uint8_t>(1u << (bit % 8));
  count(counters_.corrupted);
  return frame;
}

TimeNs FaultStage::deadline() const noexcept {
  TimeNs earliest = kNever;
  for (std::size_t i = 0; i < held_count_; ++i) earliest = std::min(earliest, held_[i].due);
  return earliest;
}

void FaultStage::clear() noexcept {
  for (std::size_t i = 0; i < held_count_; ++i) rte_pktmbuf_free(held_[i].frame);
  held_count_ = 0;
  count(counters_.held, 0 - counters_.held);
}

}  // namespace gradwire::port
