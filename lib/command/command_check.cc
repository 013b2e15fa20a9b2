// SPDX-License-Identifier: BSD-3-Clause
#include "command/command_check.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "collective/shard.h"

namespace gradwire::command {

namespace {

[[gnu::format(printf, 3, 4)]] bool refuse(Refusal& refusal, ErrorCode code, const char* format,
                                          ...) noexcept {
  refusal.code = code;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(refusal.text, sizeof refusal.text, format, arguments);
  va_end(arguments);
  return false;
}

bool check_bounds(const char* which, std::uint32_t handle, std::uint64_t offset,
                  std::uint64_t bytes, const MemoryView& memory, Range& range,
                  Refusal& refusal) noexcept {
  if (memory.base == nullptr) {
    return refuse(refusal, ErrorCode::kNotFound, "%s memory %" PRIu32 " is not this client's",
                  which, handle);
  }
  if (offset > memory.bytes || bytes > memory.bytes - offset) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "%s of %" PRIu64 " bytes at offset %" PRIu64 " leaves memory %" PRIu32
                  ", which has %" PRIu64 " bytes",
                  which, bytes, offset, handle, memory.bytes);
  }
  range.begin = memory.base + offset;
  range.end = range.begin + bytes;
  return true;
}

const char* in_place_rule(Collective collective) noexcept {
  switch (collective) {
    case Collective::kAllGather:
      return "that the input is this process's block of the output";
    case Collective::kReduceScatter:
      return "that the output is this process's block of the input";
    default:
      return "the same offset";
  }
}

/// What can be said without looking at memory.
bool check_fields(const ipc::CommandEntry& command, const ProcessPlace& place,
                  Refusal& refusal) noexcept {
  if (!is_valid(command.collective)) {
    return refuse(refusal, ErrorCode::kUnsupported,
                  "command type %u is unknown; 1 is all-reduce, 2 reduce, 3 broadcast, 4 "
                  "all-gather, 5 reduce-scatter, 11 barrier",
                  static_cast<unsigned>(command.collective));
  }
  const char* const name = name_of(command.collective).data();  // of a literal: it ends with NUL
  if (command.reserved != 0) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "the reserved byte of a command is %u and must be 0",
                  static_cast<unsigned>(command.reserved));
  }
  if (!is_valid(static_cast<DataType>(command.datatype))) {
    return refuse(refusal, ErrorCode::kInvalidArgument, "datatype %u is not in 0 ... %d",
                  static_cast<unsigned>(command.datatype), kDataTypeCount - 1);
  }
  if (!is_valid(static_cast<RedOp>(command.redop))) {
    return refuse(refusal, ErrorCode::kInvalidArgument, "redop %u is not in 0 ... %d",
                  static_cast<unsigned>(command.redop), kRedOpCount - 1);
  }
  if (!fits(static_cast<RedOp>(command.redop), static_cast<DataType>(command.datatype))) {
    return refuse(refusal, ErrorCode::kInvalidArgument, "redop %s %s: %s cannot be reduced by it",
                  name_of(static_cast<RedOp>(command.redop)).data(),
                  misfit_of(static_cast<RedOp>(command.redop)).data(),
                  name_of(static_cast<DataType>(command.datatype)).data());
  }
  if (command.redop != 0 && !reduces(command.collective)) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "redop %u: %s reduces nothing, it must be 0",
                  static_cast<unsigned>(command.redop), name);
  }
  if (command.root != 0 && !has_root(command.collective)) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "root %" PRIu32 ": %s has no root, it must be 0", command.root, name);
  }
  if (command.root >= place.processes) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "root %" PRIu32 " of %s is none of the group's %" PRIu32
                  " processes, which are 0 ... %" PRIu32,
                  command.root, name, place.processes, place.processes - 1);
  }
  if (command.collective == Collective::kBarrier && (command.count != 0 || command.datatype != 0)) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "count %" PRIu64 " and datatype %u: a barrier has no elements, both must be 0",
                  command.count, static_cast<unsigned>(command.datatype));
  }
  return true;
}

bool check_memory(const ipc::CommandEntry& command, const OpLimits& limits,
                  const ProcessPlace& place, const MemoryView& input, const MemoryView& output,
                  CommandRanges& ranges, Refusal& refusal) noexcept {
  const CollectiveCall call = command.call();
  const auto extent = extent_of(call, place);
  const auto whole = whole_count(call, place.processes);
  if (!extent || !whole || *whole > kMostElements) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "count %" PRIu64 " of %" PRIu32 "-byte elements, of %" PRIu32
                  " processes, is more than an op can have: 2^48 elements",
                  command.count, element_bytes(call.datatype), place.processes);
  }
  if (extent->input != 0 && !check_bounds("input", command.input_memory, command.input_offset,
                                          extent->input, input, ranges.input, refusal)) {
    return false;
  }
  if (extent->output != 0 && !check_bounds("output", command.output_memory, command.output_offset,
                                           extent->output, output, ranges.output, refusal)) {
    return false;
  }
  if (!may_lie(reinterpret_cast<std::uintptr_t>(ranges.input.begin),
               reinterpret_cast<std::uintptr_t>(ranges.output.begin), *extent)) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "input at offset %" PRIu64 " and output at offset %" PRIu64 " of memory %" PRIu32
                  " overlap in part: they must be disjoint or in place, which for %s means %s",
                  command.input_offset, command.output_offset, command.input_memory,
                  name_of(command.collective).data(), in_place_rule(command.collective));
  }
  const std::uint64_t chunks = collective::lane_chunks(
      {.nranks = limits.nranks,
       .member_count = static_cast<std::uint16_t>(place.processes / limits.nranks),
       .layout = limits.layout},
      limits.payload_bytes, limits.lanes,
      {call.collective, call.datatype, call.root, call.count, call.redop});
  if (chunks > limits.max_chunks) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "count %" PRIu64 " makes %" PRIu64 " chunks on a lane; %" PRIu32
                  " are allowed: call it in parts",
                  command.count, chunks, limits.max_chunks);
  }
  return true;
}

}  // namespace

bool check_command(const ipc::CommandEntry& command, const OpLimits& limits,
                   const ProcessPlace& place, const MemoryView& input, const MemoryView& output,
                   CommandRanges& ranges, Refusal& refusal) noexcept {
  ranges = {};
  if (!check_fields(command, place, refusal)) return false;
  if (command.count != 0 && !check_memory(command, limits, place, input, output, ranges, refusal)) {
    return false;  // without elements it touches no memory, so handles and offsets mean nothing
  }
  if (!collective::is_supported(command.collective)) {
    return refuse(refusal, ErrorCode::kUnsupported, "this daemon does not do %s yet",
                  name_of(command.collective).data());
  }
  return true;
}

}  // namespace gradwire::command
