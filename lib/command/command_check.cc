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

}  // namespace

bool check_command(const ipc::CommandEntry& command, const OpLimits& limits,
                   const MemoryView& input, const MemoryView& output, CommandRanges& ranges,
                   Refusal& refusal) noexcept {
  ranges = {};
  if (command.type != ipc::CommandType::kAllReduce) {
    return refuse(refusal, ErrorCode::kUnsupported, "command type %u is unknown; 1 is all-reduce",
                  static_cast<unsigned>(command.type));
  }
  if (command.reserved != 0) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "the reserved byte of a command is %u and must be 0",
                  static_cast<unsigned>(command.reserved));
  }
  if (command.reserved2 != 0) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "the reserved word of a command is %" PRIu32 " and must be 0", command.reserved2);
  }
  const auto datatype = static_cast<DataType>(command.datatype);
  if (!is_valid(datatype)) {
    return refuse(refusal, ErrorCode::kInvalidArgument, "datatype %u is not in 0 ... %d",
                  static_cast<unsigned>(command.datatype), kDataTypeCount - 1);
  }
  if (!is_valid(static_cast<RedOp>(command.redop))) {
    return refuse(refusal, ErrorCode::kInvalidArgument, "redop %u is not in 0 ... %d",
                  static_cast<unsigned>(command.redop), kRedOpCount - 1);
  }
  if (command.count == 0) return true;  // touches no memory, so handles and offsets mean nothing

  const std::uint64_t element = element_bytes(datatype);
  if (command.count > UINT64_MAX / element) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "count %" PRIu64 " of %" PRIu64 "-byte elements is more than memory can be",
                  command.count, element);
  }
  const std::uint64_t bytes = command.count * element;
  if (!check_bounds("input", command.input_memory, command.input_offset, bytes, input, ranges.input,
                    refusal) ||
      !check_bounds("output", command.output_memory, command.output_offset, bytes, output,
                    ranges.output, refusal)) {
    return false;
  }
  if (ranges.input.begin != ranges.output.begin && ranges.input.overlaps(ranges.output)) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "input at offset %" PRIu64 " and output at offset %" PRIu64 " of memory %" PRIu32
                  " overlap in part: they must be the same or disjoint",
                  command.input_offset, command.output_offset, command.input_memory);
  }
  const std::uint64_t chunks = collective::lane_chunks(command.count, datatype, limits.nranks,
                                                       limits.payload_bytes, limits.lanes);
  if (chunks > limits.max_chunks) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "count %" PRIu64 " makes %" PRIu64 " chunks on a lane; %" PRIu32
                  " are allowed: reduce in parts",
                  command.count, chunks, limits.max_chunks);
  }
  return true;
}

}  // namespace gradwire::command
