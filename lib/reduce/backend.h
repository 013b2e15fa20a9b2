// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Reduction of chunks, in batches. A backend takes entries and reports later which are done: the
/// CPU backend finishes them inside submit(), a GPU backend queues them. One lane owns a backend;
/// submit() and poll() neither allocate nor block.
///
/// Numbers (doc/architecture.md, Numbers): fp16 and bf16 are computed in fp32, fp32 in fp32, fp64
/// in fp64, integers in their own width with wrap-around. An entry folds the members' values, of a
/// premul-sum each times its factor, in member order and, at hop > 0, the packet's value last, all
/// in the accumulator's type, divides by `divisor` if the redop is avg and the entry is final (with
/// `finalize`, and always for kReduceAndStore and kLocal), and rounds once, to nearest even.
/// - A NaN result of a fold is the canonical positive quiet NaN (fp32 0x7fc00000, fp64
///   0x7ff8000000000000, fp16 0x7e00, bf16 0x7fc0); min and max propagate NaN and order -0 below
///   +0. fp16 and bf16 beyond their largest value round to infinity.
/// - kFoldInOrder folds the contributions of several ranks at once, and rounds after each of them
///   as a ring does after each hop: its bits are those of kLoad, then kReduceInPacket for each rank
///   that follows.
/// - If nothing is folded, bits are copied, including those of NaNs: kStore, kLoadFromOutput, kLoad
///   and kLocal of one member without a factor, and kFoldInOrder of one source that is not wide.
///   The division of an avg is a fold, but by a divisor of 1 (one rank, one member) it is not done:
///   that copies bits too.
/// - An integer avg divides the sum that has wrapped in the integer's own width (int8: 100 + 100 is
///   minus 56) and truncates toward zero.
/// - The calling thread's MXCSR has to be at its default: round to nearest, no FTZ, no DAZ. The CPU
///   backend neither sets nor checks it.
/// - Every instruction set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/types.h"

namespace gradwire::reduce {

enum class Kind : std::uint8_t {
  kLoad,            ///< packet = fold(inputs)                               hop 0
  kReduceInPacket,  ///< packet = fold(inputs, packet)
  kReduceAndStore,  ///< packet = fold(inputs, packet), final; outputs = packet; one pass
  kReduceToOutput,  ///< outputs[0] = fold(inputs, packet); the packet is left alone (spill). With
                    ///< `finalize`: every output
  kStore,           ///< outputs = packet
  kLoadFromOutput,  ///< packet = outputs[0]
  kLocal,           ///< outputs = fold(inputs), final; no packet (a group of one rank)
  kCheck,        ///< writes nothing, computes the packet's CRC only, and is not counted as a chunk
  kLoadWide,     ///< as kLoad, but what 16-bit datatypes come to stays in fp32, not rounded: the
                 ///< packet is [count] of fp32. Other datatypes: as kLoad
  kFoldInOrder,  ///< outputs and packet = fold(sources); see Entry::source_count. Either of
                 ///< outputs and packet may be nullptr
};

/// One chunk's work. Pointers need no alignment beyond 1 byte. `inputs` and `outputs` are the
/// members' gradient memory; the chunk starts `offset_bytes` into each.
struct Entry {
  Kind kind = Kind::kLoad;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  bool finalize = false;   ///< last reducing hop: avg divides here
  bool streaming = false;  ///< final values in the outputs are not read again soon: they may be
                           ///< written past the cache. Changes no bit of them
  bool crc = false;  ///< the completion brings the packet's CRC32C, as the entry leaves it: GPU
                     ///< backends alone, for payloads that the CPU cannot read
  std::uint16_t member_count = 1;  ///< [1, kMaxMembers]: length of inputs and outputs
  /// Length of outputs if it differs from member_count; 0 = it does not.
  std::uint16_t output_count = 0;
  std::uint16_t source_count = 0;  ///< of kFoldInOrder, [1, Backend::sources_max()]:
                                   ///< `inputs` are so many ranks' contributions, in the
                                   ///< order of the fold. The first is the ring's first
  std::uint32_t count = 0;         ///< elements, from 1
  std::uint32_t divisor = 1;       ///< the group's processes, for avg; [1, kMaxProcesses]
  bool wide = false;               ///< of kFoldInOrder: the sources are as kLoadWide makes
                                   ///< them, and overlap no target
  std::byte* packet = nullptr;     ///< payload: [count] of datatype
  const std::byte* const* inputs = nullptr;  ///< [member_count] bases of the members' inputs, or
                                             ///< [source_count] of sources
  std::byte* const* outputs = nullptr;       ///< [member_count] bases of the members' outputs
  /// [member_count] of a premul-sum: each input is multiplied by its own, rounded to the
  /// accumulator's type, before it is folded. nullptr: none is.
  const double* factors = nullptr;
  std::uint64_t offset_bytes = 0;       ///< of the chunk in each input (source) and output
  std::int64_t output_shift_bytes = 0;  ///< added to `offset_bytes` for outputs
  std::uint64_t cookie = 0;             ///< the caller's; comes back in the completion
  /// The caller has found is_one_each(), and what that looks at has not changed since.
  bool one_each = false;
};

/// Whether it has one input and one output, and a redop that every datatype has. It looks neither
/// at the kind nor at the packet and its offset.
[[nodiscard]] inline bool is_one_each(const Entry& entry) noexcept {
  return entry.member_count == 1 && entry.output_count <= 1 && !entry.crc &&
         entry.redop <= RedOp::kProd && is_valid(entry.datatype) && entry.divisor != 0 &&
         entry.divisor <= kMaxProcesses && entry.inputs != nullptr && entry.outputs != nullptr;
}

/// Whether contributions of several members lose bits if they travel as the datatype: 16-bit
/// datatypes, whose wide form is fp32.
[[nodiscard]] constexpr bool has_wide_form(DataType type) noexcept {
  return type == DataType::kFloat16 || type == DataType::kBfloat16;
}

struct Completion {
  std::uint64_t cookie = 0;
  bool ok = true;  ///< false: the batch failed, or the entry's fields are out of their bounds and
                   ///< it was not run; the group must abort
  std::uint32_t crc = 0;  ///< CRC32C of the packet, if Entry::crc requested it
};

struct BackendCounters {
  std::uint64_t chunks_reduced = 0;  ///< entries with a fold onto a packet's value
  std::uint64_t chunks_moved = 0;    ///< loads and stores
  std::uint64_t bytes = 0;           ///< payload bytes of all entries
  std::uint64_t batches = 0;         ///< in which a GPU got them; 0 on the CPU
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// "cpu avx2", "cpu scalar", "emu", "cuda".
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// The way on which payloads reach the processor that reduces them; bytes are counted by path.
  [[nodiscard]] virtual const char* path() const noexcept { return "cpu"; }
  /// Takes entries from the front of `entries`, as many as it has room for. Memory named by an
  /// entry belongs to the backend until its completion is polled; an output may be the input of the
  /// same entry (in place), and overlaps nothing else of the batch.
  /// @return how many were taken.
  [[nodiscard]] virtual std::size_t submit(std::span<const Entry> entries) noexcept = 0;
  /// Fills `done` from its front with what finished since the last call, in any order.
  /// @return how many.
  [[nodiscard]] virtual std::size_t poll(std::span<Completion> done) noexcept = 0;
  /// Sources that an entry of kFoldInOrder may have. 0: it fails those entries, and kLoadWide.
  [[nodiscard]] virtual std::uint32_t sources_max() const noexcept { return 0; }
  /// Whether run() may be called instead of submit() and poll().
  [[nodiscard]] virtual bool runs_at_once() const noexcept { return false; }
  /// Runs one entry before it returns, without a completion.
  /// @return as Completion::ok.
  [[nodiscard]] virtual bool run(const Entry&) noexcept { return false; }
  /// Makes what completed entries have written visible to every thread that learns of it after this
  /// call.
  virtual void make_visible() noexcept {}
  [[nodiscard]] virtual const BackendCounters& counters() const noexcept = 0;
};

/// CPU instruction sets that the CPU backend is written for.
enum class Isa : std::uint8_t { kAuto, kScalar, kAvx2 };

/// @param capacity  completions held at once, from 1: entries submitted and not yet polled.
/// @return nullptr if this CPU does not support `isa`.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(std::size_t capacity, Isa isa = Isa::kAuto);

}  // namespace gradwire::reduce
