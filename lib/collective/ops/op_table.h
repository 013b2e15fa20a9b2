// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The ops of a shard: those that are active, with three bits for each of their chunks, and the
/// descriptors of the last ones, kept after completion so that a rank that called something else
/// is still found out. One lane owns it; it allocates at construction only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/planted_bug.h"
#include "base/require.h"
#include "collective/ops/chunk.h"
#include "collective/ops/op_spec.h"
#include "collective/shapes/partition.h"
#include "collective/shapes/shape.h"
#include "reduce/backend.h"
#include "wire/packet.h"

namespace gradwire::collective {

[[nodiscard]] inline OpCall call_of(const OpSpec& spec) noexcept {
  return {spec.count, spec.tag, static_cast<std::uint16_t>(spec.root),
          kinds_of(spec.collective, spec.datatype), how_of(spec.redop, spec.wire)};
}

struct OpDescriptor {
  std::uint64_t op_seq = 0;  ///< 0 = nothing kept here
  std::uint64_t digest = 0;  ///< of all calls up to this one: wire::digest_of()
  OpCall call;
};

/// @param digest  likewise
[[nodiscard]] inline wire::SaidCall said_of(std::uint64_t op_seq, std::uint64_t digest,
                                            const OpCall& call) noexcept {
  return {.op_seq = op_seq,
          .digest = digest,
          .count = call.count,
          .tag = call.tag,
          .datatype = call.datatype(),
          .redop = call.redop(),
          .collective = call.collective(),
          .root = call.root,
          .format = call.wire()};
}

struct Op {
  enum class State : std::uint8_t { kEmpty, kActive, kDone };
  State state = State::kEmpty;
  OpSpec spec;
  OpCall call;  ///< of the spec
  Partition partition;
  std::uint64_t arrivals_left = 0;  ///< packets that this rank's lane still has to finish
  std::uint64_t own_next = 0;       ///< next chunk that starts here, and where they end
  std::uint64_t own_end = 0;
  std::uint64_t spilled_left = 0;    ///< chunks to be sent from the output
  std::uint64_t spill_cursor = 0;    ///< lane chunk index from which to look for the next
  std::uint32_t loads_pending = 0;   ///< batch entries that read or write this op's memory
  std::uint32_t spills_pending = 0;  ///< of these, chunks on their way to the output
  std::uint32_t eager_sent = 0;      ///< counted against the eager allowance
  OpRecord record;                   ///< its retransmissions: the shard's when it was posted
  Shape shape = Shape::kRing;
  OpRules rules;  ///< of the shape
  Route route;
  bool admitted = true;               ///< all ranks have posted it, or it does not wait for that
  bool unagreed = false;              ///< the next rank has to say that it called the same
  bool keeps_own = false;             ///< what arrives waits until own input is read: OpRules
  reduce::Entry entry;                ///< the ring's: what the works of all its chunks have alike
  std::uint64_t bitmap_words = 0;     ///< of one of the three bitmaps
  std::uint64_t* reduced = nullptr;   ///< the chunk's reducing hop was accepted
  std::uint64_t* gathered = nullptr;  ///< its gathering hop was accepted; if the op keeps_own:
                                      ///< this rank's part has been read, and may be overwritten
  std::uint64_t* spilled = nullptr;   ///< it waits in the output to be sent

  /// The first member's part in a chunk, if it is folded: what a fold reads first.
  [[nodiscard]] const std::byte* own_part(const ChunkSpan& span) const noexcept {
    if (spec.inputs[0] == nullptr) return nullptr;
    return spec.inputs[0] + span.first_element * partition.element_bytes();
  }
  /// Whether nothing is left to be done here; the next rank may still have to post it.
  [[nodiscard]] bool worked_off() const noexcept {
    return arrivals_left == 0 && spilled_left == 0 && loads_pending == 0 && own_next >= own_end &&
           admitted && !unagreed;
  }
  [[nodiscard]] bool finished() const noexcept {
    return worked_off() &&
           (!(rules.one_way && eager_sent > 0) || planted(PlantedBug::kDoneBeforeNextPosted));
  }
};

[[nodiscard]] inline bool test_bit(const std::uint64_t* bits, std::uint64_t i) noexcept {
  return (bits[i >> 6] >> (i & 63)) & 1;
}
inline void set_bit(std::uint64_t* bits, std::uint64_t i) noexcept {
  bits[i >> 6] |= std::uint64_t{1} << (i & 63);
}
inline void clear_bit(std::uint64_t* bits, std::uint64_t i) noexcept {
  bits[i >> 6] &= ~(std::uint64_t{1} << (i & 63));
}

class OpTable {
 public:
  static constexpr std::uint64_t kDescriptorsKept = 256;

  /// @param lane, lanes  chunk c of an op is this table's if c % lanes is lane.
  OpTable(std::uint32_t max_active_ops, std::uint32_t max_chunks, std::uint8_t lane = 0,
          std::uint8_t lanes = 1);

  /// Opens the slot of the next op. @return nullptr if there is no room yet.
  [[nodiscard]] Op* open(const OpSpec& spec, const OpPlan& plan) noexcept;
  /// The active op of that number, or nullptr.
  [[nodiscard]] Op* find(std::uint64_t op_seq) noexcept {
    Op& op = slots_[op_seq & slot_mask_];
    return op.state == Op::State::kActive && op.spec.op_seq == op_seq ? &op : nullptr;
  }
  [[nodiscard]] const Op* find(std::uint64_t op_seq) const noexcept {
    const Op& op = slots_[op_seq & slot_mask_];
    return op.state == Op::State::kActive && op.spec.op_seq == op_seq ? &op : nullptr;
  }
  /// Nothing refers to the op's memory any more.
  void close(Op& op) noexcept;
  /// Ops up to that one have nothing for this rank, which has no members. @return whether there was
  /// room; if not, an older op has to end first.
  [[nodiscard]] bool skip_to(std::uint64_t op_seq) noexcept;

  /// Index of a chunk of this lane's among them: of its bits.
  [[nodiscard]] std::uint64_t index_of(std::uint64_t chunk) const noexcept {
    // A product, since a division would cost more than the rest of what is done for a packet.
    __extension__ using Product = unsigned __int128;
    return inverse_ == 0 ? chunk : static_cast<std::uint64_t>(Product{chunk} * inverse_ >> 64);
  }
  [[nodiscard]] std::uint64_t chunk_of(std::uint64_t index) const noexcept {
    return index * lanes_ + lane_;
  }
  /// Whether the packet's fold would overwrite what this rank has still to send: the op keeps its
  /// own, and the backend has not read that chunk of it yet.
  [[nodiscard]] bool waits_for_own(const wire::DataHeader& header) const noexcept;
  /// What was posted under that number; nullptr if it is too old or not posted yet.
  [[nodiscard]] const OpCall* call(std::uint64_t op_seq) const noexcept {
    const OpDescriptor& kept = descriptors_[op_seq % kDescriptorsKept];
    return kept.op_seq == op_seq && op_seq != 0 ? &kept.call : nullptr;
  }
  /// The digest of all calls up to that one; nothing if that is not kept.
  [[nodiscard]] std::optional<std::uint64_t> digest(std::uint64_t op_seq) const noexcept {
    const OpDescriptor& kept = descriptors_[op_seq % kDescriptorsKept];
    if (kept.op_seq != op_seq || op_seq == 0) return {};
    return kept.digest;
  }
  /// What another rank is told of the op that it asks for: of that one, of the oldest that is kept
  /// if it is older, of the last one if it asks for none.
  [[nodiscard]] wire::SaidCall say(std::uint64_t asked) const noexcept {
    if (posted_ == 0) return {};
    const std::uint64_t oldest = posted_ < kDescriptorsKept ? 1 : posted_ - kDescriptorsKept + 1;
    const std::uint64_t op_seq = asked == 0 ? posted_ : std::clamp(asked, oldest, posted_);
    const OpDescriptor& kept = descriptors_[op_seq % kDescriptorsKept];
    if (kept.op_seq != op_seq) return {};
    return said_of(op_seq, kept.digest, kept.call);
  }
  [[nodiscard]] bool was_posted(std::uint64_t op_seq) const noexcept { return op_seq <= posted_; }
  [[nodiscard]] std::uint64_t posted() const noexcept { return posted_; }
  /// Every op up to this one is done.
  [[nodiscard]] std::uint64_t done() const noexcept { return done_; }
  /// The first that is not; 0 if all are done.
  [[nodiscard]] std::uint64_t oldest_unfinished() const noexcept {
    return posted_ > done_ ? done_ + 1 : 0;
  }
  [[nodiscard]] std::uint32_t max_chunks() const noexcept { return max_chunks_; }

  /// The oldest op with chunks that still start here; nullptr if none has. The search goes on where
  /// the last one ended.
  [[nodiscard]] Op* next_own() noexcept;
  /// As next_own(), but the next search begins where this one did.
  [[nodiscard]] const Op* peek_own() const noexcept;
  /// Whether next_own() has not gone through all ops.
  [[nodiscard]] bool own_may_be_left() const noexcept { return own_op_ <= posted_; }
  /// Whether the op at which next_own() ended is still active.
  [[nodiscard]] bool own_waits() const noexcept {
    return own_op_ <= posted_ && find(own_op_) != nullptr;
  }

  /// A chunk of the op lies in its output, to be sent from there.
  void add_spilled(Op& op, std::uint64_t index) noexcept;
  /// The first op from number `from` on that has such a chunk; nullptr if none has.
  [[nodiscard]] Op* next_spilled(std::uint64_t from) noexcept;
  [[nodiscard]] const Op* oldest_spilled() const noexcept;
  /// @return the index of the op's first such chunk. It has one.
  [[nodiscard]] static std::uint64_t first_spilled(Op& op) noexcept;
  void remove_spilled(Op& op, std::uint64_t index) noexcept;
  void forget_spilled() noexcept { spilled_ = 0; }
  /// In all ops.
  [[nodiscard]] std::uint64_t spilled() const noexcept { return spilled_; }

 private:
  /// Ring allocation of bitmap words; they come back in the order of the ops.
  [[nodiscard]] std::uint64_t* take_words(std::uint64_t words) noexcept;
  void release_done() noexcept;

  std::uint32_t max_chunks_;
  std::uint8_t lane_;
  std::uint8_t lanes_;
  /// 2^64 / lanes_, rounded up: exact for any chunk below 2^56. 0: one lane.
  std::uint64_t inverse_;
  std::uint64_t slot_mask_;
  std::vector<Op> slots_;
  std::vector<OpDescriptor> descriptors_;
  std::vector<std::uint64_t> words_;
  std::uint64_t words_head_ = 0;  ///< next free word
  std::uint64_t words_used_ = 0;  ///< including what was skipped at the end to stay in one piece
  std::vector<std::uint64_t> words_of_slot_;  ///< used by the op in that slot, skipped ones too
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t own_op_ = 1;  ///< first op that may have own chunks to start
  std::uint64_t spilled_ = 0;
};

}  // namespace gradwire::collective
