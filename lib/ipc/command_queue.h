// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Commands from a client to its daemon and completions back: two single-producer,
/// single-consumer rings in one shared memory region (a sealed hugepage memfd that the daemon
/// makes). Each side keeps private copies of its own indexes and trusts nothing that the other side
/// writes: an entry is copied out before it is looked at, and an index that cannot be is an error
/// of the peer. Nothing here allocates or blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/collective_call.h"
#include "base/types.h"
#include "base/wire_format.h"

namespace gradwire::ipc {

inline constexpr std::uint32_t kQueueMagic = 0x47575134;  // "GWQ4"
/// Commands that a client may have outstanding: ops of groups, and transfers besides, whose
/// receives may wait for long.
inline constexpr std::uint32_t kOpCommands = 256;
inline constexpr std::uint32_t kTransferCommands = 768;
inline constexpr std::uint32_t kCommandEntries = 1024;     ///< power of two
inline constexpr std::uint32_t kCompletionEntries = 1024;  ///< >= outstanding commands
static_assert(kOpCommands + kTransferCommands <= kCompletionEntries);

/// One call. A field that its collective does not take is 0: the redop of what is only moved, the
/// root but of a reduce and a broadcast, everything but the tag of a barrier. Memory that the
/// process neither reads nor writes, such as the output of a reduce that is not its root's, is not
/// looked at. A daemon that does not know a collective refuses it by its number. What
/// few commands have stands beside it: CommandExtra.
struct alignas(64) CommandEntry {
  std::uint64_t request_id = 0;    ///< the client's own; comes back in the completion
  std::uint64_t group_handle = 0;  ///< from the join reply
  std::uint64_t count = 0;         ///< elements, as CollectiveCall::count; 0 is an op too
  std::uint64_t input_offset = 0;  ///< bytes into the input memory
  std::uint64_t output_offset = 0;
  std::uint32_t input_memory = 0;   ///< handle from the allocate reply
  std::uint32_t output_memory = 0;  ///< in place: see may_lie() in base/collective_call.h
  std::uint32_t tag = 0;
  Collective collective = Collective::kAllReduce;
  std::uint8_t datatype = 0;  ///< gradwire::DataType
  std::uint8_t redop = 0;     ///< gradwire::RedOp
  /// The lower four bits are flags, the upper four the WireFormat.
  std::uint8_t flags = 0;
  static constexpr std::uint8_t kHasSplits = 1;
  static constexpr std::uint8_t kHasResiduals = 2;  ///< CommandExtra says where; with a format
  /// Of a receive: the sender may send less than `count` elements, and CompletionEntry::bytes tells
  /// how much came.
  static constexpr std::uint8_t kUpTo = 4;
  /// The input is there when it has passed; 0: it is there. Sends and receives, which wait for
  /// none, have the stream of their pair here.
  std::uint32_t ready_event = 0;
  /// A process; of a send or a receive the other one. With kHasSplits the memory in which the
  /// SplitTable lies, `count` bytes from its start: who gathers or scatters by splits is the root.
  std::uint32_t root = 0;

  [[nodiscard]] std::uint32_t event() const noexcept {
    return has_partner(collective) ? 0 : ready_event;
  }
  [[nodiscard]] std::uint32_t stream() const noexcept {
    return has_partner(collective) ? ready_event : 0;
  }
  [[nodiscard]] bool has_splits() const noexcept { return (flags & 0x0f) == kHasSplits; }
  [[nodiscard]] bool has_residuals() const noexcept { return (flags & 0x0f) == kHasResiduals; }
  [[nodiscard]] bool up_to() const noexcept { return (flags & 0x0f) == kUpTo; }
  [[nodiscard]] bool has_extra() const noexcept {
    return redop == static_cast<std::uint8_t>(RedOp::kPremulSum) || has_residuals();
  }
  [[nodiscard]] WireFormat wire() const noexcept { return static_cast<WireFormat>(flags >> 4); }
  void set_wire(WireFormat format) noexcept {
    flags = static_cast<std::uint8_t>((flags & 0x0f) | static_cast<unsigned>(format) << 4);
  }
  [[nodiscard]] CollectiveCall call() const noexcept {
    return {
        collective, static_cast<DataType>(datatype), static_cast<RedOp>(redop), count, root, tag,
        wire()};
  }
};
static_assert(sizeof(CommandEntry) == 64);

/// What stands beside a command that has_extra().
struct CommandExtra {
  double factor = 1;  ///< of a premul-sum
  // Of a command with kHasResiduals: fp32, as many as the input has elements. What is read is added
  // to what the rank gives, and what its encoding loses is written. Handles from allocate replies.
  std::uint32_t residual_in_memory = 0;  ///< 0: nothing is added
  std::uint32_t residual_out_memory = 0;
  std::uint64_t residual_in_offset = 0;  ///< bytes
  std::uint64_t residual_out_offset = 0;
};
static_assert(sizeof(CommandExtra) == 32);

/// Where the blocks of an all-to-all, a gather or a scatter lie that are not equally large. The
/// client writes it to its own memory, aligned to 8 bytes, and leaves it there until the op is
/// done.
struct SplitTable {
  std::uint64_t input_bytes = 0;  ///< of this process's input and output in all
  std::uint64_t output_bytes = 0;
  struct Block {
    std::uint64_t offset = 0;  ///< bytes into the input or output
    std::uint64_t bytes = 0;
  };
  /// By process: of an all-to-all those that go out, then those that come; else the root's.
  [[nodiscard]] const Block* blocks() const noexcept {
    return reinterpret_cast<const Block*>(this + 1);
  }
  /// Of a table for a group of so many processes.
  [[nodiscard]] static constexpr std::uint64_t bytes_for(Collective collective,
                                                         std::uint64_t processes) noexcept {
    const std::uint64_t blocks = collective == Collective::kAllToAll ? 2 * processes : processes;
    return sizeof(SplitTable) + blocks * sizeof(Block);
  }
};
static_assert(sizeof(SplitTable) == 16 && sizeof(SplitTable::Block) == 16);

struct CompletionEntry {
  static constexpr std::size_t kTextBytes = 224;
  std::uint64_t request_id = 0;
  std::uint64_t op_seq = 0;  ///< 0 where the command never became an op
  std::uint32_t status = 0;  ///< gradwire::ErrorCode
  std::uint32_t reserved = 0;
  char text[kTextBytes] = {};  ///< why, NUL-terminated; empty on success
  std::uint64_t bytes = 0;     ///< of a send or a receive that is done: what was moved
};
static_assert(sizeof(CompletionEntry) == 256);

/// The shared region. Indexes count entries ever written or read, modulo 2^32.
struct QueueRegion {
  std::uint32_t magic = 0;
  std::uint32_t bytes = 0;
  alignas(64) std::atomic<std::uint32_t> command_tail;     ///< client writes
  alignas(64) std::atomic<std::uint32_t> command_head;     ///< daemon writes
  alignas(64) std::atomic<std::uint32_t> completion_tail;  ///< daemon writes
  alignas(64) std::atomic<std::uint32_t> completion_head;  ///< client writes
  alignas(64) std::atomic<std::uint32_t> daemon_sleeps;    ///< daemon sets; client then rings the
                                                           ///< doorbell after a push
  std::atomic<std::uint32_t> lane_core;  ///< daemon: 1 + the core on which its lane slept last;
                                         ///< 0: not known
  alignas(64) std::atomic<std::uint32_t> client_waits;  ///< client sets; daemon then writes the
                                                        ///< completion socket after a push
  std::atomic<std::uint64_t> woken_at_ns;  ///< daemon: when it last did, by CLOCK_MONOTONIC
  alignas(64) CommandEntry commands[kCommandEntries];
  CompletionEntry completions[kCompletionEntries];
  CommandExtra extras[kCommandEntries];  ///< of the command at the same place
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert((kCommandEntries & (kCommandEntries - 1)) == 0);
static_assert((kCompletionEntries & (kCompletionEntries - 1)) == 0);
static_assert(offsetof(QueueRegion, commands) == 7 * 64);

/// Makes an empty region in `memory`: zeroed, at least sizeof(QueueRegion), aligned to 64 bytes.
/// @return nullptr where it is too small or not aligned.
[[nodiscard]] QueueRegion* create_queue_region(void* memory, std::size_t bytes) noexcept;
/// The client's look at a region that the daemon made.
/// @return nullptr where size, alignment or magic are not those of a queue region.
[[nodiscard]] QueueRegion* open_queue_region(void* memory, std::size_t bytes) noexcept;

enum class PopResult : std::uint8_t { kEntry, kEmpty, kPeerFault };

/// The daemon's end. One lane owns it.
class DaemonQueue {
 public:
  DaemonQueue() = default;
  explicit DaemonQueue(QueueRegion* region) noexcept : region_(region) {}
  /// Copies the next command out. kPeerFault: the client's index cannot be; drop the client.
  /// @param extra  gets what stands beside it, and of a command without one the defaults.
  [[nodiscard]] PopResult pop_command(CommandEntry& out, CommandExtra& extra) noexcept;
  [[nodiscard]] PopResult pop_command(CommandEntry& out) noexcept {
    CommandExtra extra;
    return pop_command(out, extra);
  }
  /// @return whether there was room. There always is while no more commands are outstanding than
  /// kCompletionEntries; an index of the client's that cannot be counts as no room.
  [[nodiscard]] bool push_completion(const CompletionEntry& entry) noexcept;
  /// @return whether the client asked for a write to the completion eventfd; clears the wish, and
  /// notes the time, since the caller writes at once.
  [[nodiscard]] bool take_client_waits() noexcept;
  /// Before the lane sleeps: true, then one more look at has_command().
  void set_daemon_sleeps(bool sleeps) noexcept;
  /// @param core  on which the lane runs; below 0 if it is not known.
  void set_lane_core(int core) noexcept;
  [[nodiscard]] bool has_command() const noexcept;

 private:
  QueueRegion* region_ = nullptr;
  std::uint32_t command_head_ = 0;
  std::uint32_t completion_tail_ = 0;
};

/// The client's end. One thread at a time (the client library locks).
class ClientQueue {
 public:
  ClientQueue() = default;
  explicit ClientQueue(QueueRegion* region) noexcept : region_(region) {}
  /// @return whether there was room.
  [[nodiscard]] bool push_command(const CommandEntry& entry,
                                  const CommandExtra& extra = {}) noexcept;
  /// @return whether the daemon sleeps, so that the doorbell must be rung after a push.
  [[nodiscard]] bool daemon_sleeps() const noexcept;
  [[nodiscard]] PopResult pop_completion(CompletionEntry& out) noexcept;
  [[nodiscard]] bool has_completion() const noexcept;
  void set_client_waits(bool waits) noexcept;
  /// The core on which the daemon's lane slept last; -1 if it is not known: it never slept.
  [[nodiscard]] int lane_core() const noexcept;
  /// When the daemon last wrote to the completion socket, by CLOCK_MONOTONIC; 0: never.
  [[nodiscard]] std::uint64_t woken_at_ns() const noexcept;

 private:
  QueueRegion* region_ = nullptr;
  std::uint32_t command_tail_ = 0;
  std::uint32_t completion_head_ = 0;
};

}  // namespace gradwire::ipc
