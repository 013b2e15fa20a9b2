// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/streaming_copy.h"
#include "reduce/backend.h"
#include "reduce/cpu_kernels.h"
#include "reduce/lowering.h"

namespace gradwire::reduce {
namespace {

void copy_bits(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (to != from) {
    std::memcpy(to, from, bytes);
  }
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, std::size_t capacity) : kernels_(kernels), done_(capacity) {}

  [[nodiscard]] const char* name() const noexcept override { return kernels_.name; }

  [[nodiscard]] std::size_t submit(std::span<const Entry> entries) noexcept override {
    const std::size_t taken = std::min(entries.size(), done_.size() - held_);
    for (const Entry& entry : entries.first(taken)) {
      const bool ok = run(entry);
      std::size_t slot = first_ + held_;
      slot -= slot >= done_.size() ? done_.size() : 0;
      done_[slot] = {entry.cookie, ok};
      ++held_;
    }
    return taken;
  }

  [[nodiscard]] std::size_t poll(std::span<Completion> done) noexcept override {
    const std::size_t count = std::min(done.size(), held_);
    for (Completion& completion : done.first(count)) {
      completion = done_[first_];
      first_ = first_ + 1 == done_.size() ? 0 : first_ + 1;
    }
    held_ -= count;
    return count;
  }

  [[nodiscard]] bool runs_at_once() const noexcept override { return true; }

  [[nodiscard]] std::uint32_t sources_max() const noexcept override { return kMaxRanks; }

  [[nodiscard]] bool run(const Entry& entry) noexcept override {
    const bool is_load = entry.kind == Kind::kLoad && !entry.finalize;
    if ((is_load || entry.kind == Kind::kStore) && (entry.one_each || is_one_each(entry)) &&
        entry.count != 0 && entry.packet != nullptr) {
      copy(entry, is_load);
      return true;
    }
    if (!is_plain(entry) || entry.crc) return run_other(entry);
    move(entry);
    return true;
  }

  void make_visible() noexcept override {
    if (!streamed_) return;
    streaming_fence();
    streamed_ = false;
  }

  [[nodiscard]] const BackendCounters& counters() const noexcept override { return counters_; }

 private:
  void move(const Entry& entry) noexcept {
    const std::size_t bytes = std::size_t{entry.count} * element_bytes(entry.datatype);
    counters_.bytes += bytes;
    ++(folds_packet(entry.kind) ? counters_.chunks_reduced : counters_.chunks_moved);
    // Not initialized, because a chunk usually needs only the first few of the 65 places.
    std::array<const std::byte*, kMaxSources> sources;
    std::array<std::byte*, kMaxTargets> targets;
    Fold fold;
    if (entry.one_each &&
        (entry.kind == Kind::kReduceAndStore || entry.kind == Kind::kReduceInPacket)) {
      lower_pair(entry, sources.data(), targets.data(), fold);
    } else {
      lower(entry, sources.data(), targets.data(), fold);
    }
    if (streams(entry)) {
      // One more pass over a payload in L1 costs less than outputs that go through the cache.
      if (entry.kind == Kind::kReduceAndStore) {
        const std::size_t outputs = fold.target_count;
        fold.target_count = 1;  // the packet
        fold_all(entry, fold);
        fold.target_count = outputs;
      }
      for (std::size_t t = writes_packet(entry.kind) ? 1 : 0; t < fold.target_count; ++t) {
        kernels_.streaming_copy(targets[t], entry.packet, bytes);
      }
      streamed_ = true;
      return;
    }
    if (fold.source_count == 1 && fold.divisor == 1) {  // Nothing is folded: bits are copied.
      for (std::size_t t = 0; t < fold.target_count; ++t) {
        copy_bits(targets[t], sources[0], bytes);
      }
      return;
    }
    fold_all(entry, fold);
  }

  /// One member's input to the packet, or the packet to one output: most of the ring's chunks.
  void copy(const Entry& entry, bool is_load) noexcept {
    const std::size_t bytes = std::size_t{entry.count} * element_bytes(entry.datatype);
    counters_.bytes += bytes;
    ++counters_.chunks_moved;
    if (is_load) {
      copy_bits(entry.packet, entry.inputs[0] + entry.offset_bytes, bytes);
    } else if (std::byte* const to = entry.outputs[0] + output_offset(entry); streams(entry)) {
      kernels_.streaming_copy(to, entry.packet, bytes);
      streamed_ = true;
    } else {
      copy_bits(to, entry.packet, bytes);
    }
  }

  void fold_all(const Entry& entry, const Fold& fold) noexcept { call(kernels_.fold, entry, fold); }

  static void call(const FoldTable& table, const Entry& entry, const Fold& fold) noexcept {
    table[static_cast<std::size_t>(entry.datatype)][static_cast<std::size_t>(entry.redop)](fold);
  }

  /// Kinds and redops that few entries are of. @return false if the entry is out of its bounds.
  [[nodiscard]] __attribute__((noinline)) bool run_other(const Entry& entry) noexcept {
    if (entry.crc || !is_well_formed(entry, kMaxRanks)) return false;
    const std::size_t bytes = std::size_t{entry.count} * target_width(entry);
    counters_.bytes += bytes;
    ++(reduces(entry.kind) ? counters_.chunks_reduced : counters_.chunks_moved);
    std::array<std::byte*, kMaxTargets> targets;
    std::array<const std::byte*, kMaxRanks> sources;
    static_assert(kMaxRanks >= kMaxSources);
    Fold fold;
    lower_any(entry, sources.data(), targets.data(), fold);
    if (copies_bits(fold)) {
      for (std::size_t t = 0; t < fold.target_count; ++t) copy_bits(targets[t], sources[0], bytes);
    } else {
      call(fold.in_order ? kernels_.fold_in_order
           : fold.wide   ? kernels_.fold_wide
                         : kernels_.fold,
           entry, fold);
    }
    return true;
  }

  /// Whether outputs are written past the cache: final values that lie in the packet.
  [[nodiscard]] bool streams(const Entry& entry) const noexcept {
    return entry.streaming && kernels_.streaming_copy != nullptr &&
           (entry.kind == Kind::kStore || entry.kind == Kind::kReduceAndStore);
  }

  const Kernels& kernels_;
  std::vector<Completion> done_;  ///< fixed ring: never resized
  std::size_t first_ = 0;         ///< oldest completion held
  std::size_t held_ = 0;          ///< completions held
  bool streamed_ = false;         ///< something was written past the cache since the last fence
  BackendCounters counters_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::size_t capacity, Isa isa) {
  const Kernels* const avx2 = isa == Isa::kScalar ? nullptr : avx2_kernels();
  if (isa == Isa::kAvx2 && avx2 == nullptr) {
    return nullptr;
  }
  return std::make_unique<CpuBackend>(avx2 != nullptr ? *avx2 : scalar_kernels(), capacity);
}

}  // namespace gradwire::reduce
