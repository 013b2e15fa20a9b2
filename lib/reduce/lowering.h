// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Turns an entry into what every backend runs: one fold of some sources into some targets, or a
/// copy of bits if nothing is folded. Private to lib/reduce. Any thread; nothing here allocates.
#pragma once

#include <array>
#include <cstddef>

#include "reduce/backend.h"
#include "reduce/cpu_kernels.h"

namespace gradwire::reduce {

[[nodiscard]] inline bool has_packet(Kind kind) noexcept { return kind != Kind::kLocal; }

/// Kinds whose sources are the members' inputs.
[[nodiscard]] inline bool reads_inputs(Kind kind) noexcept {
  return kind != Kind::kStore && kind != Kind::kLoadFromOutput && kind != Kind::kCheck;
}

[[nodiscard]] inline bool folds_packet(Kind kind) noexcept {
  return kind == Kind::kReduceInPacket || kind == Kind::kReduceAndStore ||
         kind == Kind::kReduceToOutput;
}

/// For the counters: whether it adds one rank's values to another's.
[[nodiscard]] inline bool reduces(Kind kind) noexcept {
  return folds_packet(kind) || kind == Kind::kFoldInOrder;
}

[[nodiscard]] inline bool writes_outputs(Kind kind) noexcept {
  return kind == Kind::kReduceAndStore || kind == Kind::kReduceToOutput || kind == Kind::kStore ||
         kind == Kind::kLocal;
}

/// The packet is the last source: the members' inputs come before it.
[[nodiscard]] inline bool reads_packet(Kind kind) noexcept {
  return folds_packet(kind) || kind == Kind::kStore || kind == Kind::kCheck;
}

/// The packet is the first target.
[[nodiscard]] inline bool writes_packet(Kind kind) noexcept {
  return has_packet(kind) && kind != Kind::kReduceToOutput && kind != Kind::kStore &&
         kind != Kind::kCheck;
}

/// Whether the entry is well-formed, of a kind up to kCheck and of a redop up to kProd, which every
/// datatype has: nearly all entries are.
[[nodiscard, gnu::always_inline]] inline bool is_plain(const Entry& entry) noexcept {
  return static_cast<std::uint8_t>(entry.kind) <= static_cast<std::uint8_t>(Kind::kCheck) &&
         is_valid(entry.datatype) && entry.redop <= RedOp::kProd && entry.member_count >= 1 &&
         entry.member_count <= kMaxMembers && entry.output_count <= kMaxMembers &&
         entry.count >= 1 && entry.divisor >= 1 && entry.divisor <= kMaxProcesses &&
         (!has_packet(entry.kind) || entry.packet != nullptr) &&
         (!reads_inputs(entry.kind) || entry.inputs != nullptr) &&
         ((!writes_outputs(entry.kind) && entry.kind != Kind::kLoadFromOutput) ||
          entry.outputs != nullptr);
}

/// @param sources_max  as Backend::sources_max().
[[nodiscard]] inline bool is_well_formed(const Entry& entry, std::uint32_t sources_max) noexcept {
  if (!fits(entry.redop, entry.datatype)) return false;
  if (entry.kind == Kind::kFoldInOrder) {
    return entry.source_count >= 1 && entry.source_count <= sources_max &&
           entry.member_count >= 1 && entry.member_count <= kMaxMembers &&
           entry.output_count <= kMaxMembers && entry.count >= 1 && entry.divisor >= 1 &&
           entry.divisor <= kMaxProcesses && entry.inputs != nullptr &&
           (entry.packet != nullptr || entry.outputs != nullptr);
  }
  Entry plain = entry;
  plain.redop = RedOp::kSum;
  if (entry.kind == Kind::kLoadWide) plain.kind = Kind::kLoad;
  return is_plain(plain);
}

/// Room for the sources, and for the targets, of any entry but kFoldInOrder.
inline constexpr std::size_t kMaxSources = kMaxMembers + 1;
inline constexpr std::size_t kMaxTargets = kMaxMembers + 1;

/// Where the chunk starts in each output.
[[nodiscard]] inline std::ptrdiff_t output_offset(const Entry& entry) noexcept {
  return static_cast<std::ptrdiff_t>(entry.offset_bytes) + entry.output_shift_bytes;
}

/// Whether nothing is folded: bits are copied.
[[nodiscard]] inline bool copies_bits(const Fold& fold) noexcept {
  return fold.source_count == 1 && fold.divisor == 1 && !fold.wide && fold.factor_count == 0;
}

/// Fills `fold`, whose arrays are `sources` and `targets`.
/// @param entry  well-formed, and no kFoldInOrder.
[[gnu::always_inline]] inline void lower(const Entry& entry, const std::byte** sources,
                                         std::byte** targets, Fold& fold) noexcept {
  const bool finalize =
      entry.finalize || entry.kind == Kind::kReduceAndStore || entry.kind == Kind::kLocal;
  fold.sources = sources;
  fold.targets = targets;
  fold.count = entry.count;
  fold.divisor =
      finalize && entry.redop == RedOp::kAvg && reads_inputs(entry.kind) ? entry.divisor : 1;
  fold.source_count = 0;
  fold.target_count = 0;
  if (entry.kind == Kind::kLoadFromOutput) {
    sources[fold.source_count++] = entry.outputs[0] + output_offset(entry);
  }
  if (reads_inputs(entry.kind)) {
    for (std::size_t m = 0; m < entry.member_count; ++m) {
      sources[fold.source_count++] = entry.inputs[m] + entry.offset_bytes;
    }
  }
  if (reads_packet(entry.kind)) sources[fold.source_count++] = entry.packet;
  if (writes_packet(entry.kind)) targets[fold.target_count++] = entry.packet;
  if (writes_outputs(entry.kind)) {
    // A spill keeps a partial sum in one output; a final value goes to every member.
    const std::size_t all = entry.output_count != 0 ? entry.output_count : entry.member_count;
    const std::size_t outputs = entry.kind == Kind::kReduceToOutput && !finalize ? 1 : all;
    const std::ptrdiff_t offset = output_offset(entry);
    for (std::size_t m = 0; m < outputs; ++m) {
      targets[fold.target_count++] = entry.outputs[m] + offset;
    }
  }
}

/// The same for an entry that is_one_each(), and of kind kReduceInPacket or kReduceAndStore.
[[gnu::always_inline]] inline void lower_pair(const Entry& entry, const std::byte** sources,
                                              std::byte** targets, Fold& fold) noexcept {
  const bool stores = entry.kind == Kind::kReduceAndStore;
  fold.sources = sources;
  fold.targets = targets;
  fold.count = entry.count;
  fold.divisor = (entry.finalize || stores) && entry.redop == RedOp::kAvg ? entry.divisor : 1;
  fold.source_count = 2;
  sources[0] = entry.inputs[0] + entry.offset_bytes;
  sources[1] = targets[0] = entry.packet;
  if (stores) targets[1] = entry.outputs[0] + output_offset(entry);
  fold.target_count = stores ? 2 : 1;
}

/// The same for kFoldInOrder.
/// @param sources  room for [entry.source_count].
/// @param targets  room for kMaxTargets.
inline void lower_in_order(const Entry& entry, const std::byte** sources, std::byte** targets,
                           Fold& fold) noexcept {
  fold.sources = sources;
  fold.targets = targets;
  fold.count = entry.count;
  fold.divisor = entry.finalize && entry.redop == RedOp::kAvg ? entry.divisor : 1;
  fold.source_count = entry.source_count;
  fold.target_count = 0;
  fold.in_order = true;
  fold.wide = entry.wide && has_wide_form(entry.datatype);
  for (std::size_t s = 0; s < entry.source_count; ++s) {
    sources[s] = entry.inputs[s] + entry.offset_bytes;
  }
  if (entry.packet != nullptr) targets[fold.target_count++] = entry.packet;
  if (entry.outputs == nullptr) return;
  const std::size_t outputs = entry.output_count != 0 ? entry.output_count : entry.member_count;
  for (std::size_t m = 0; m < outputs; ++m) {
    targets[fold.target_count++] = entry.outputs[m] + output_offset(entry);
  }
}

/// The same for an entry of any kind. @param sources  room for as many as it has.
inline void lower_any(const Entry& entry, const std::byte** sources, std::byte** targets,
                      Fold& fold) noexcept {
  if (entry.kind == Kind::kFoldInOrder) return lower_in_order(entry, sources, targets, fold);
  lower(entry, sources, targets, fold);
  if (entry.redop == RedOp::kPremulSum && entry.factors != nullptr && reads_inputs(entry.kind)) {
    fold.factors = entry.factors;
    fold.factor_count = entry.member_count;
  }
  fold.wide = entry.kind == Kind::kLoadWide && has_wide_form(entry.datatype);
}

/// Bytes of an element of the packet and of the outputs.
[[nodiscard]] inline std::uint32_t target_width(const Entry& entry) noexcept {
  const bool wide = entry.kind == Kind::kLoadWide && has_wide_form(entry.datatype);
  return wide ? sizeof(float) : element_bytes(entry.datatype);
}

}  // namespace gradwire::reduce
