// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Decides whether a client's command may become an op: checks every field of the lane's private
/// copy against what the daemon knows. Pure functions; nothing allocates; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/collective_call.h"
#include "base/process_layout.h"
#include "base/result.h"
#include "base/types.h"
#include "collective/shapes/place.h"
#include "ipc/command_queue.h"

namespace gradwire::command {

/// Bytes [begin, end) of client memory.
struct Range {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  [[nodiscard]] bool overlaps(const Range& other) const noexcept {
    return begin < other.end && other.begin < end;
  }
};

/// What an accepted command reads and writes.
struct CommandRanges {
  Range input;
  Range output;
  Range residual_in{};   ///< read
  Range residual_out{};  ///< written; empty if the command has no residuals
  /// Whether the two commands may not run at once: one writes what the other touches.
  [[nodiscard]] bool conflicts(const CommandRanges& other) const noexcept {
    if (output.overlaps(other.output) || output.overlaps(other.input) ||
        input.overlaps(other.output)) {
      return true;
    }
    if (residual_out.begin == nullptr && other.residual_out.begin == nullptr) [[likely]]
      return false;
    return writes_residual_over(other) || other.writes_residual_over(*this);
  }

 private:
  [[nodiscard]] bool writes_residual_over(const CommandRanges& other) const noexcept {
    return residual_out.overlaps(other.input) || residual_out.overlaps(other.output) ||
           residual_out.overlaps(other.residual_in) || residual_out.overlaps(other.residual_out) ||
           output.overlaps(other.residual_in);
  }
};

/// The part of a group's configuration that bounds an op.
struct OpLimits {
  /// The shards' own: an op has as many chunks as they cut it into, by whichever shape. What it
  /// refers to outlives the group.
  collective::ShapeGroup shape;
  bool folds_only = false;  ///< this rank has no members
  std::uint8_t lanes = 1;
  std::uint32_t max_chunks = 0;  ///< the limit for one op on one lane
  /// Why the group has no transfers; nullptr: it has them.
  const char* why_no_transfers = nullptr;
  std::uint16_t streams = 1;     ///< that a pair of processes may have
  bool transfers_alone = false;  ///< the group has nothing else
  /// Why no op may travel in a wire format; nullptr: it may.
  const char* why_no_formats = nullptr;
};

/// The client's memory that a command's handle names.
struct MemoryView {
  std::byte* base = nullptr;  ///< nullptr: this client has no such handle
  std::uint64_t bytes = 0;
};

/// Why a command is refused: the error code and its text.
struct Refusal {
  ErrorCode code = ErrorCode::kOk;
  char text[ipc::CompletionEntry::kTextBytes] = {};
};

/// The memory of a command's splits, if it has any.
struct SplitsView {
  MemoryView memory;
  /// Set by check_command(): the table, all of it in that memory.
  const ipc::SplitTable* table = nullptr;
};

/// The memory of a command's residuals, if it has any.
struct ResidualsView {
  MemoryView in;
  MemoryView out;
};

/// Checks collective, datatype, redop, root, count, offsets, bounds, size and how input and output
/// lie. Does not look at other commands (see CommandRanges::conflicts).
/// @param place the calling process's place in its group.
/// @return false, and sets `refusal`; or true, and sets `ranges`, whose range is empty for what
/// this process does not read or write.
[[nodiscard]] bool check_command(const ipc::CommandEntry& command, const OpLimits& limits,
                                 const ProcessPlace& place, const MemoryView& input,
                                 const MemoryView& output, CommandRanges& ranges, Refusal& refusal,
                                 SplitsView* splits = nullptr) noexcept;
/// Of a command with residuals that check_command() took: whether its process may have them, and
/// where they lie. @return false, and sets `refusal`; or true, and adds to `ranges`.
/// @param member  of its rank.
[[nodiscard]] bool check_residuals(const ipc::CommandEntry& command, const ipc::CommandExtra& extra,
                                   const ProcessPlace& place, std::size_t member,
                                   const ResidualsView& memory, CommandRanges& ranges,
                                   Refusal& refusal) noexcept;

}  // namespace gradwire::command
