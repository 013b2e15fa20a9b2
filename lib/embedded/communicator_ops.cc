// SPDX-License-Identifier: BSD-3-Clause
// Ops of a communicator: checked, posted and waited for.

#include <fmt/format.h>

#include <optional>

#include "base/float_environment.h"
#include "command/command_check.h"
#include "embedded/communicator.h"

namespace gradwire::embedded {
namespace {

/// What an op reads and writes; nothing if it has no elements.
command::CommandRanges ranges_of(const void* input, const void* output, std::uint64_t count,
                                 DataType datatype) noexcept {
  const auto range = [&](const void* base) {
    const auto* begin = static_cast<const std::byte*>(base);
    return command::Range{begin, begin + count * element_bytes(datatype)};
  };
  command::CommandRanges ranges;
  if (count == 0) return ranges;
  ranges.input = range(input);
  ranges.output = range(output);
  return ranges;
}

}  // namespace

Result<void> Communicator::check(const AllReduce& op) const {
  if (plan_ == nullptr || !joined_) {
    return fail(ErrorCode::kInvalidArgument, "an op was posted before form() or after leave()");
  }
  if (!is_valid(op.datatype) || !is_valid(op.redop)) {
    return fail(ErrorCode::kInvalidArgument, "unknown datatype or redop");
  }
  if (!fits(op.redop, op.datatype)) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("redop {} {}: {} cannot be reduced by it", name_of(op.redop),
                            misfit_of(op.redop), name_of(op.datatype)));
  }
  const std::uint64_t element = element_bytes(op.datatype);
  if (op.count > UINT64_MAX / 2 / element) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} elements are more than memory can hold", op.count));
  }
  if (op.count != 0 && (op.input == nullptr || op.output == nullptr)) {
    return fail(ErrorCode::kInvalidArgument, "the input or the output pointer is null");
  }
  const collective::ShardConfig& config = plan_->shards.front().shard->config();
  const std::uint64_t chunks = collective::lane_chunks(op.count, op.datatype, config.nranks,
                                                       config.payload_bytes, config.lanes);
  if (chunks > config.max_chunks) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} elements make {} chunks on a lane, must be at most {}: reduce in parts",
                    op.count, chunks, config.max_chunks));
  }
  const command::CommandRanges ranges = ranges_of(op.input, op.output, op.count, op.datatype);
  if (op.input != op.output && ranges.input.overlaps(ranges.output)) {
    return fail(ErrorCode::kInvalidArgument,
                "input and output overlap in part: they must be the same or disjoint");
  }
  for (std::uint64_t op_seq = done_ + 1; op_seq <= posted_; ++op_seq) {
    const collective::OpSpec& other = specs_[op_seq % command::kOpSlots];
    if (!ranges.conflicts(
            ranges_of(other.inputs[0], other.outputs[0], other.count, other.datatype))) {
      continue;
    }
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("its memory overlaps that of the unfinished op {}, and one of the two "
                            "writes: wait for that one first",
                            op_seq));
  }
  return {};
}

Result<std::uint64_t> Communicator::post(const AllReduce& op) {
  if (reason_.is_set()) return tl::unexpected(aborted());
  if (auto ok = check(op); !ok) return tl::unexpected(ok.error());
  if (posted_ - done_ >= kMaxPosted) {
    return fail(ErrorCode::kBusy,
                fmt::format("{} ops are unfinished, which is the limit: wait for one", kMaxPosted));
  }
  const std::uint64_t op_seq = posted_ + 1;
  collective::OpSpec& spec = specs_[op_seq % command::kOpSlots];
  spec.op_seq = op_seq;
  spec.count = op.count;
  spec.tag = op.tag;
  spec.datatype = op.datatype;
  spec.redop = op.redop;
  factors_[op_seq % command::kOpSlots] = op.factor;
  spec.factors = &factors_[op_seq % command::kOpSlots];
  spec.inputs[0] = static_cast<const std::byte*>(op.input);
  spec.outputs[0] = static_cast<std::byte*>(op.output);
  lanes_done_[op_seq % command::kOpSlots] = 0;
  posted_ = op_seq;
  for (std::uint8_t lane = 0; lane < plan_->shards.size(); ++lane) {
    // As many as may be posted fit: the rings are larger than kMaxPosted.
    if (!datapath_->post_ops(lane, {plan_->group_handle, op_seq, specs_.data()})) {
      return fail(ErrorCode::kInternal, fmt::format("the op queue of lane {} is full", lane));
    }
  }
  return op_seq;
}

bool Communicator::test(std::uint64_t op_seq) noexcept {
  const FloatEnvironment defaults;
  static_cast<void>(drive(clock_.now()));
  return done_ >= op_seq;
}

Result<void> Communicator::wait(std::uint64_t op_seq, TimeNs timeout_ns) {
  const TimeNs start = clock_.now();
  const FloatEnvironment defaults;
  TimeNs now = start;
  std::optional<lane::PreciseSleeps> precise;
  while (done_ < op_seq && !reason_.is_set()) {
    const bool worked = drive(now);
    if (done_ < op_seq) idle(now, worked, precise);
    now = clock_.now();
    if (now - start > timeout_ns && done_ < op_seq) {
      take_notices();
      return fail(ErrorCode::kTimedOut,
                  fmt::format("op {} was not done after {:.3f} s; the last op that is done is {}",
                              op_seq, static_cast<double>(timeout_ns) / 1e9, done_));
    }
  }
  if (done_ < op_seq) return tl::unexpected(aborted());
  return {};
}

Result<void> Communicator::all_reduce(const AllReduce& op, TimeNs timeout_ns) {
  const auto op_seq = post(op);
  if (!op_seq) return tl::unexpected(op_seq.error());
  return wait(*op_seq, timeout_ns);
}

}  // namespace gradwire::embedded
