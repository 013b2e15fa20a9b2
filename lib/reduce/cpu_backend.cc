// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "reduce/backend.h"
#include "reduce/kernels.h"

namespace gradwire::reduce {
namespace {

void copy_bits(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (to != from) {
    std::memcpy(to, from, bytes);
  }
}

bool has_packet(Kind kind) noexcept { return kind != Kind::kLocal; }

/// Kinds whose sources are the members' inputs.
bool reads_inputs(Kind kind) noexcept {
  return kind != Kind::kStore && kind != Kind::kLoadFromOutput;
}

bool folds_packet(Kind kind) noexcept {
  return kind == Kind::kReduceInPacket || kind == Kind::kReduceAndStore ||
         kind == Kind::kReduceToOutput;
}

bool writes_outputs(Kind kind) noexcept {
  return kind == Kind::kReduceAndStore || kind == Kind::kReduceToOutput || kind == Kind::kStore ||
         kind == Kind::kLocal;
}

bool is_well_formed(const Entry& entry) noexcept {
  return static_cast<std::uint8_t>(entry.kind) <= static_cast<std::uint8_t>(Kind::kLocal) &&
         is_valid(entry.datatype) && is_valid(entry.redop) && entry.member_count >= 1 &&
         entry.member_count <= kMaxMembers && entry.count >= 1 && entry.divisor >= 1 &&
         entry.divisor <= kMaxRanks * kMaxMembers &&
         (!has_packet(entry.kind) || entry.packet != nullptr) &&
         (!reads_inputs(entry.kind) || entry.inputs != nullptr) &&
         ((!writes_outputs(entry.kind) && entry.kind != Kind::kLoadFromOutput) ||
          entry.outputs != nullptr);
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Kernels& kernels, std::size_t capacity) : kernels_(kernels), done_(capacity) {}

  [[nodiscard]] const char* name() const noexcept override { return kernels_.name; }

  [[nodiscard]] std::size_t submit(std::span<const Entry> entries) noexcept override {
    const std::size_t taken = std::min(entries.size(), done_.size() - held_);
    for (const Entry& entry : entries.first(taken)) {
      const bool ok = is_well_formed(entry);
      if (ok) {
        run(entry);
      }
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

  [[nodiscard]] const BackendCounters& counters() const noexcept override { return counters_; }

 private:
  void run(const Entry& entry) noexcept {
    const std::size_t bytes = std::size_t{entry.count} * element_bytes(entry.datatype);
    counters_.bytes += bytes;
    ++(folds_packet(entry.kind) ? counters_.chunks_reduced : counters_.chunks_moved);
    if (entry.kind == Kind::kStore) {
      for (std::size_t m = 0; m < entry.member_count; ++m) {
        copy_bits(entry.outputs[m] + entry.offset_bytes, entry.packet, bytes);
      }
    } else if (entry.kind == Kind::kLoadFromOutput) {
      copy_bits(entry.packet, entry.outputs[0] + entry.offset_bytes, bytes);
    } else {
      fold(entry, bytes);
    }
  }

  void fold(const Entry& entry, std::size_t bytes) noexcept {
    const bool finalize =
        entry.finalize || entry.kind == Kind::kReduceAndStore || entry.kind == Kind::kLocal;
    // Left uninitialized: only the first few of the 65 places are used, for every chunk.
    std::array<const std::byte*, kMaxMembers + 1> sources;
    std::array<std::byte*, kMaxMembers + 1> targets;
    Fold fold;
    fold.sources = sources.data();
    fold.targets = targets.data();
    fold.count = entry.count;
    fold.divisor = finalize && entry.redop == RedOp::kAvg ? entry.divisor : 1;
    if (folds_packet(entry.kind)) {
      sources[fold.source_count++] = entry.packet;
    }
    for (std::size_t m = 0; m < entry.member_count; ++m) {
      sources[fold.source_count++] = entry.inputs[m] + entry.offset_bytes;
    }
    if (has_packet(entry.kind) && entry.kind != Kind::kReduceToOutput) {
      targets[fold.target_count++] = entry.packet;
    }
    if (writes_outputs(entry.kind)) {
      // A spill keeps a partial sum in one output; a final value goes to every member.
      const std::size_t outputs =
          entry.kind == Kind::kReduceToOutput && !finalize ? 1 : entry.member_count;
      for (std::size_t m = 0; m < outputs; ++m) {
        targets[fold.target_count++] = entry.outputs[m] + entry.offset_bytes;
      }
    }
    if (fold.source_count == 1 && fold.divisor == 1) {  // Nothing is folded: bits are copied.
      for (std::size_t t = 0; t < fold.target_count; ++t) {
        copy_bits(targets[t], sources[0], bytes);
      }
      return;
    }
    kernels_.fold[static_cast<std::size_t>(entry.datatype)][static_cast<std::size_t>(entry.redop)](
        fold);
  }

  const Kernels& kernels_;
  std::vector<Completion> done_;  ///< fixed ring: never resized
  std::size_t first_ = 0;         ///< oldest completion held
  std::size_t held_ = 0;          ///< completions held
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
