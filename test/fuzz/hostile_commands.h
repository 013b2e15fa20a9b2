// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A client of the command lane that writes whatever an input says to its queue, and the commands
/// that it pushes: mostly such as could be, for two clients in groups 1 and 2.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "collective/transfers/transfer_chunks.h"
#include "command/command_lane.h"
#include "fuzz/input.h"
#include "ipc/command_queue.h"

namespace gradwire::fuzz {

struct Freed {
  void operator()(void* p) const { std::free(p); }
};

struct HostileClient {
  explicit HostileClient(std::uint32_t id)
      : raw(std::aligned_alloc(64, sizeof(ipc::QueueRegion))),
        region(ipc::create_queue_region(raw.get(), sizeof(ipc::QueueRegion))),
        queue(region) {
    // Zeros, as mmap gives: an entry that was never written is all zeros.
    std::memset(static_cast<void*>(region->commands), 0, sizeof region->commands);
    std::memset(static_cast<void*>(region->completions), 0, sizeof region->completions);
    port.client_id = id;
    port.queue = ipc::DaemonQueue(region);
  }
  std::unique_ptr<void, Freed> raw;
  ipc::QueueRegion* region;
  ipc::ClientQueue queue;
  command::ClientPort port;
  bool removed = false;
};

inline ipc::CommandEntry any_command(Input& input, Collective collective, std::uint32_t root) {
  ipc::CommandEntry entry;
  entry.collective = collective;
  entry.root = root;
  entry.request_id = input.u8();
  entry.group_handle = 1 + input.pick(2);
  entry.count = input.pick(64);
  entry.input_memory = 1 + input.pick(2);
  entry.output_memory = 1 + input.pick(2);
  entry.input_offset = input.pick(4) * 64;
  entry.output_offset = input.pick(4) * 64;
  const std::uint8_t change = input.u8();
  if ((change & 1) != 0) entry.count = input.u64();
  if ((change & 2) != 0) entry.input_offset = input.u64();
  if ((change & 4) != 0) entry.output_offset = input.u64();
  if ((change & 8) != 0) entry.input_memory = input.u32();
  if ((change & 16) != 0) entry.tag = input.u32();
  if ((change & 32) != 0) entry.datatype = input.u8();
  if ((change & 64) != 0) entry.redop = input.u8();
  if ((change & 128) != 0) {
    // Formats with and without residuals, which few random flags are.
    static constexpr std::uint8_t kSome[] = {0x10, 0x20, 0x12, 0x12};
    const std::uint8_t flags = input.u8();
    entry.flags = flags < 128 ? kSome[flags % std::size(kSome)] : input.u8();
  }
  if ((change & 16) != 0) entry.ready_event = entry.tag % 5;
  return entry;
}

/// What stands beside a command, and may be right for one with residuals.
inline ipc::CommandExtra any_extra(Input& input) {
  ipc::CommandExtra extra;
  extra.residual_in_memory = input.pick(4);
  extra.residual_out_memory = 1 + input.pick(3);
  extra.residual_in_offset = input.pick(16) * 16;
  extra.residual_out_offset = input.pick(16) * 16;
  const std::uint8_t change = input.u8();
  if ((change & 1) != 0) extra.residual_in_memory = input.u32();
  if ((change & 2) != 0) extra.residual_out_memory = input.u32();
  if ((change & 4) != 0) extra.residual_in_offset = input.u64();
  if ((change & 8) != 0) extra.residual_out_offset = input.u64();
  return extra;
}

inline void push_any(ipc::ClientQueue& queue, Input& input, Collective collective,
                     std::uint32_t root) {
  const ipc::CommandEntry command = any_command(input, collective, root);
  const auto extra = command.has_residuals() ? any_extra(input) : ipc::CommandExtra{};
  static_cast<void>(queue.push_command(command, extra));
}

/// Reads and writes an op's residuals, which have to be member 0's and apart.
/// @param inside  whether so many bytes lie in memory of that member's.
template <class Inside>
void touch_residuals(const collective::OpSpec& spec, std::uint64_t processes, Inside&& inside) {
  if (spec.residual_out == nullptr) return;
  FUZZ_CHECK(spec.wire != WireFormat::kSame && spec.count != 0);
  const bool has_blocks = spec.collective == Collective::kReduceScatter;
  const std::size_t bytes = spec.count * (has_blocks ? processes : 1) * sizeof(float);
  FUZZ_CHECK(inside(spec.residual_out, bytes));
  std::memset(spec.residual_out, 1, bytes);
  if (spec.residual_in == nullptr) return;
  FUZZ_CHECK(inside(spec.residual_in, bytes));
  FUZZ_CHECK(spec.residual_in + bytes <= spec.residual_out ||
             spec.residual_out + bytes <= spec.residual_in);
}

/// Whether a lane may have this transfer.
inline bool is_for(std::uint8_t lane, std::uint8_t lanes, std::uint16_t streams,
                   const collective::TransferSpec& spec) {
  const bool only_first = spec.up_to || spec.pair.stream != 0;
  return spec.pair.stream < streams &&
         (!only_first || lane == collective::TransferChunks::first_lane(spec.pair, lanes));
}

/// A lane knows that the `part`th part comes of what a receive has room for.
inline void tell_size(command::CommandLane& commands, std::uint64_t group, std::uint8_t lane,
                      const collective::TransferSpec& spec, std::uint32_t part) {
  const std::uint64_t bytes = spec.terms.bytes / part;
  commands.on_report({group, spec.id, collective::EventType::kTransferSized, lane, {}, bytes});
}

/// An all-to-all, a gather or a scatter with splits that may be right. Group g has g x `ranks`
/// processes.
/// @param memory_of  gives the client's memory of a handle: there the splits go.
template <class MemoryOf>
ipc::CommandEntry split_command(Input& input, std::uint32_t ranks, MemoryOf&& memory_of) {
  static constexpr Collective kKinds[] = {Collective::kAllToAll, Collective::kGather,
                                          Collective::kScatter};
  ipc::CommandEntry entry;
  entry.collective = kKinds[input.pick(std::size(kKinds))];
  entry.flags = ipc::CommandEntry::kHasSplits;
  entry.request_id = input.u8();
  entry.group_handle = 1 + input.pick(2);
  entry.datatype = static_cast<std::uint8_t>(DataType::kUint8);
  entry.root = 1 + input.pick(2);
  entry.count = input.pick(8) * 8;
  entry.input_memory = 1 + input.pick(2);
  entry.output_memory = 1 + input.pick(2);
  entry.input_offset = input.u8() * 2;
  entry.output_offset = input.u8() * 2;
  const std::uint8_t change = input.u8();
  if ((change & 1) != 0) entry.count = input.u64();
  if ((change & 2) != 0) entry.root = input.u32();
  const std::span<std::byte> memory = memory_of(entry.root);
  if (memory.empty() || (change & 4) != 0) return entry;
  const std::uint64_t processes = ranks * entry.group_handle;
  const std::uint64_t sides = entry.collective == Collective::kAllToAll ? 2 : 1;
  const std::uint64_t block = input.pick(16);
  std::vector<std::uint64_t> table = {processes * block, processes * block};
  for (std::uint64_t i = 0; i < processes * sides; ++i) {
    table.push_back(i % processes * block);
    table.push_back(block);
  }
  if ((change & 8) != 0) {
    const std::size_t at = input.pick(10) % table.size();
    table[at] = input.small_or_any();
  }
  const std::size_t bytes = table.size() * sizeof table[0];
  if (entry.count <= memory.size() - bytes) {
    std::memcpy(memory.data() + entry.count, table.data(), bytes);
  }
  return entry;
}

}  // namespace gradwire::fuzz
