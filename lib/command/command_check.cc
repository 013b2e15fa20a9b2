// SPDX-License-Identifier: BSD-3-Clause
#include "command/command_check.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "base/planted_bug.h"
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
    case Collective::kGather:
      return "that the input is this process's block of the output";
    case Collective::kReduceScatter:
    case Collective::kScatter:
      return "that the output is this process's block of the input";
    default:
      return "the same offset";
  }
}

/// What can be said of the format without looking at the group.
bool check_format(const ipc::CommandEntry& command, Refusal& refusal) noexcept {
  const WireFormat wire = command.wire();
  if (!is_valid(wire)) {
    return refuse(refusal, ErrorCode::kUnsupported,
                  "wire format %u is unknown: 0 is same, 1 bf16, 2 int8",
                  static_cast<unsigned>(wire));
  }
  const auto redop = static_cast<RedOp>(command.redop);
  const auto datatype = static_cast<DataType>(command.datatype);
  if (fits(wire, command.collective, redop, datatype)) return true;
  return refuse(refusal, ErrorCode::kUnsupported, "%s cannot travel as %s: %s",
                text_of(command.call()).text, name_of(wire).data(),
                misfit_of(wire, command.collective, redop));
}

/// What can be said without looking at memory.
bool check_fields(const ipc::CommandEntry& command, const ProcessPlace& place,
                  Refusal& refusal) noexcept {
  if (!is_valid(command.collective)) {
    return refuse(refusal, ErrorCode::kUnsupported,
                  "command type %u is unknown; 1 is all-reduce, 2 reduce, 3 broadcast, 4 "
                  "all-gather, 5 reduce-scatter, 6 gather, 7 scatter, 8 all-to-all, 9 send, 10 "
                  "recv, 11 barrier",
                  static_cast<unsigned>(command.collective));
  }
  const char* const name = name_of(command.collective).data();  // of a literal: it ends with NUL
  const bool has_splits = command.has_splits();
  const bool up_to = command.up_to() && command.collective == Collective::kRecv;
  const bool has_residuals = command.has_residuals() && command.wire() != WireFormat::kSame;
  if ((command.flags & 0x0f) != 0 && !up_to && !has_residuals &&
      !(has_splits && is_transfer(command.collective) && !has_partner(command.collective))) {
    return refuse(
        refusal, ErrorCode::kInvalidArgument,
        "flags %u of %s: 0 is allowed, 1 of an all-to-all, a gather and a scatter, 2 of a sum in "
        "a wire format, and 4 of a recv",
        command.flags & 0x0fu, name);
  }
  if (is_transfer(command.collective) && command.event() != 0) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "event %" PRIu32 ": %s waits for none, it must be 0", command.event(), name);
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
  if (!check_format(command, refusal)) return false;
  if (has_splits) return true;  // The root's place says where they lie.
  if (command.root != 0 && !has_root(command.collective) && !has_partner(command.collective)) {
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
                  " overlap in part: %s wants them disjoint%s%s",
                  command.input_offset, command.output_offset, command.input_memory,
                  name_of(command.collective).data(),
                  extent->may_be_in_place ? " or in place, which means " : "",
                  extent->may_be_in_place ? in_place_rule(command.collective) : "");
  }
  if (is_transfer(command.collective)) return true;
  collective::ShapeGroup shape = limits.shape;
  if (planted(PlantedBug::kChunksOfOtherShape)) shape.direct_bytes = shape.two_step_bytes = 0;
  const std::uint64_t chunks = collective::lane_chunks(
      shape, limits.shape.payload_bytes, limits.lanes,
      {call.collective, call.datatype, call.root, call.count, call.redop, call.wire});
  if (chunks > limits.max_chunks) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "count %" PRIu64 " makes %" PRIu64 " chunks on a lane; %" PRIu32
                  " are allowed: call it in parts",
                  command.count, chunks, limits.max_chunks);
  }
  return true;
}

/// Of a command with splits: what it touches stands in the client's own memory.
bool check_splits(const ipc::CommandEntry& command, const ProcessPlace& place,
                  const MemoryView& input, const MemoryView& output, SplitsView& splits,
                  CommandRanges& ranges, Refusal& refusal) noexcept {
  Range table;
  const std::uint64_t bytes = ipc::SplitTable::bytes_for(command.collective, place.processes);
  if (!check_bounds("the splits", command.root, command.count, bytes, splits.memory, table,
                    refusal)) {
    return false;
  }
  if (command.count % alignof(ipc::SplitTable) != 0) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "the splits at offset %" PRIu64 " are not aligned to 8 bytes", command.count);
  }
  const auto* const given = reinterpret_cast<const ipc::SplitTable*>(table.begin);
  CollectiveExtent extent;
  extent.input = __atomic_load_n(&given->input_bytes, __ATOMIC_RELAXED);
  extent.output = __atomic_load_n(&given->output_bytes, __ATOMIC_RELAXED);
  if (command.collective == Collective::kAllToAll) {
    extent.may_be_in_place = false;
  } else {
    extent.in_place_at = __atomic_load_n(&given->blocks()[place.process].offset, __ATOMIC_RELAXED);
  }
  if (extent.input != 0 && !check_bounds("input", command.input_memory, command.input_offset,
                                         extent.input, input, ranges.input, refusal)) {
    return false;
  }
  if (extent.output != 0 && !check_bounds("output", command.output_memory, command.output_offset,
                                          extent.output, output, ranges.output, refusal)) {
    return false;
  }
  if (!may_lie(reinterpret_cast<std::uintptr_t>(ranges.input.begin),
               reinterpret_cast<std::uintptr_t>(ranges.output.begin), extent)) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "input at offset %" PRIu64 " and output at offset %" PRIu64
                  " overlap, and not as %s in place",
                  command.input_offset, command.output_offset, name_of(command.collective).data());
  }
  splits.table = given;
  return true;
}

}  // namespace

bool check_command(const ipc::CommandEntry& command, const OpLimits& limits,
                   const ProcessPlace& place, const MemoryView& input, const MemoryView& output,
                   CommandRanges& ranges, Refusal& refusal, SplitsView* splits) noexcept {
  ranges = {};
  if (!check_fields(command, place, refusal)) return false;
  if (is_transfer(command.collective) && limits.why_no_transfers != nullptr) {
    return refuse(refusal, ErrorCode::kUnsupported, "no %s in this group: %s",
                  name_of(command.collective).data(), limits.why_no_transfers);
  }
  if (limits.transfers_alone && !is_transfer(command.collective)) {
    return refuse(refusal, ErrorCode::kUnsupported,
                  "no %s in this group: it was joined for transfers alone",
                  name_of(command.collective).data());
  }
  if (command.stream() >= limits.streams) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "stream %" PRIu32 " of %s: two processes of this group have %u, from 0 on",
                  command.stream(), name_of(command.collective).data(),
                  static_cast<unsigned>(limits.streams));
  }
  if (command.wire() != WireFormat::kSame && limits.why_no_formats != nullptr) {
    return refuse(refusal, ErrorCode::kUnsupported, "nothing travels as %s in this group: %s",
                  name_of(command.wire()).data(), limits.why_no_formats);
  }
  if (command.wire() == WireFormat::kInt8 && limits.shape.nranks > 1 &&
      elements_in_chunk(WireFormat::kInt8, static_cast<DataType>(command.datatype),
                        limits.shape.payload_bytes) == 0) {
    return refuse(refusal, ErrorCode::kUnsupported,
                  "nothing travels as int8 in this group: its packets carry %" PRIu32
                  " bytes of data, and a block of int8 has 260",
                  limits.shape.payload_bytes);
  }
  if (command.has_splits()) {
    SplitsView none;
    return check_splits(command, place, input, output, splits != nullptr ? *splits : none, ranges,
                        refusal);
  }
  if (command.count != 0 && !check_memory(command, limits, place, input, output, ranges, refusal)) {
    return false;  // without elements it touches no memory, so handles and offsets mean nothing
  }
  return true;
}

bool check_residuals(const ipc::CommandEntry& command, const ipc::CommandExtra& extra,
                     const ProcessPlace& place, std::size_t member, const ResidualsView& memory,
                     CommandRanges& ranges, Refusal& refusal) noexcept {
  if (member != 0) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "residuals of member %zu: what a rank's encoding loses is kept by its member 0",
                  member);
  }
  if (command.count == 0) return true;
  const CollectiveCall call = command.call();
  // It is a sum, so each process has an input, and that it does not overflow has been seen.
  const std::uint64_t bytes =
      extent_of(call, place)->input / element_bytes(call.datatype) * sizeof(float);
  const auto is_at = [&](const char* which, std::uint32_t handle, std::uint64_t offset,
                         const MemoryView& view, Range& range) noexcept {
    if (!check_bounds(which, handle, offset, bytes, view, range, refusal)) return false;
    return offset % sizeof(float) == 0 ||
           refuse(refusal, ErrorCode::kInvalidArgument,
                  "%s at offset %" PRIu64 " is not aligned to 4 bytes", which, offset);
  };
  if (extra.residual_in_memory != 0 &&
      !is_at("residual_in", extra.residual_in_memory, extra.residual_in_offset, memory.in,
             ranges.residual_in)) {
    return false;
  }
  if (!is_at("residual_out", extra.residual_out_memory, extra.residual_out_offset, memory.out,
             ranges.residual_out)) {
    return false;
  }
  const Range& out = ranges.residual_out;
  if (out.overlaps(ranges.residual_in) || out.overlaps(ranges.input) ||
      out.overlaps(ranges.output) || ranges.residual_in.overlaps(ranges.output)) {
    return refuse(refusal, ErrorCode::kInvalidArgument,
                  "residual_out overlaps what the command reads or writes, or residual_in its "
                  "output: a part that is made twice would differ");
  }
  return true;
}

}  // namespace gradwire::command
