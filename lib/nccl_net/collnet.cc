// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/collnet.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "nccl_net/log.h"

namespace gradwire::nccl_net {
namespace {

struct Element {
  gw_datatype datatype;
  std::uint64_t bytes;  ///< 0: the daemon does not sum it
};

/// Sums and products of unsigned integers have the bits of signed ones; minima have not.
Element element_of(DataType datatype, RedOp redop) {
  const bool any_sign = redop == kSum || redop == kProd;
  switch (datatype) {
    case kInt8:
      return {GW_INT8, 1};
    case kUint8:
      return {GW_UINT8, 1};
    case kInt32:
      return {GW_INT32, 4};
    case kUint32:
      return {GW_INT32, any_sign ? 4u : 0u};
    case kInt64:
      return {GW_INT64, 8};
    case kUint64:
      return {GW_INT64, any_sign ? 8u : 0u};
    case kFloat16:
      return {GW_FLOAT16, 2};
    case kFloat32:
      return {GW_FLOAT32, 4};
    case kFloat64:
      return {GW_FLOAT64, 8};
    case kBfloat16:
      return {GW_BFLOAT16, 2};
    default:
      return {GW_FLOAT32, 0};
  }
}

gw_redop redop_of(RedOp redop) {
  constexpr gw_redop kOurs[kRedOps] = {GW_SUM, GW_PROD, GW_MAX, GW_MIN};
  return kOurs[redop];
}

}  // namespace

bool Collective::supports(DataType datatype, RedOp redop) {
  return redop >= 0 && redop < kRedOps && element_of(datatype, redop).bytes > 0;
}

Collective::~Collective() {
  bool unfinished = !broken_.empty();
  for (; summed_ != told_; ++summed_) {
    gw_work_free(segments_[summed_ % kSlots].work);
    unfinished = true;
  }
  // Others may still need what this daemon has of the last op. If the process ended first, their
  // group would be aborted.
  if (group_ != nullptr && !unfinished && gw_group_leave(group_) != GW_OK) {
    inform("leaving the group of a communicator of CollNet: %s", gw_last_error());
  }
  gw_group_free(group_);
  free_memory_beside(memory_, clients_);
}

Status Collective::post(const void* input, void* output, std::uint64_t count, DataType datatype,
                        RedOp redop, Op** request) {
  *request = nullptr;
  if (!supports(datatype, redop)) {
    warn("an all-reduce of datatype %d and reduction %d, which was not offered", datatype, redop);
    return kInvalidArgument;
  }
  const std::unique_lock lock(Engine::get().mutex, std::try_to_lock);
  if (!lock.owns_lock()) return kSuccess;
  Op& op = ops_[posted_ % kRequestsMax];
  if (op.state != Op::kFree) return kSuccess;
  const Element element = element_of(datatype, redop);
  op.owner = this;
  op.input = static_cast<const char*>(input);
  op.output = static_cast<char*>(output);
  op.datatype = element.datatype;
  op.redop = redop_of(redop);
  op.element_bytes = element.bytes;
  op.bytes = count * element.bytes;
  op.told = 0;
  op.through = 0;
  op.state = op.bytes > 0 ? Op::kPosted : Op::kDone;
  ++posted_;
  progress();
  *request = &op;
  return kSuccess;
}

Status Collective::test(Op& op, int* done, int* bytes) {
  *done = 0;
  Collective& own = *op.owner;
  if (op.state == Op::kPosted) {
    const std::unique_lock lock(Engine::get().mutex, std::try_to_lock);
    if (!lock.owns_lock()) return kSuccess;
    own.progress();
    if (op.state == Op::kPosted) {
      // What was summed before something failed is copied out, a segment a call.
      if (own.broken_.empty() || own.copied_ != own.summed_) return kSuccess;
      if (!own.warned_) warn("a communicator of CollNet has failed: %s", own.broken_.c_str());
      own.warned_ = true;
      return kRemoteError;
    }
  }
  *done = 1;
  if (bytes != nullptr) *bytes = static_cast<int>(op.bytes);
  op.state = Op::kFree;
  return kSuccess;
}

void Collective::progress() {
  take_ends();
  // One copy a call. What has come first: others' slots are free then, too.
  if (copied_ != summed_) {
    copy_out();
  } else {
    copy_in();
  }
}

void Collective::take_ends() {
  for (std::uint32_t i = 0; i < kSlots && summed_ != told_ && broken_.empty(); ++i) {
    Segment& segment = segments_[summed_ % kSlots];
    int done = 0;
    const gw_status status = gw_test(segment.work, &done);
    if (status != GW_OK) {
      broken_ = gw_last_error();
      return;
    }
    if (done == 0) return;
    gw_work_free(segment.work);
    segment.work = nullptr;
    ++summed_;
  }
}

void Collective::copy_out() {
  const Segment& segment = segments_[copied_ % kSlots];
  Op& op = *segment.op;
  std::memcpy(op.output + segment.offset, memory_of(copied_), segment.bytes);
  ++copied_;
  op.through += segment.bytes;
  if (op.through == op.bytes) op.state = Op::kDone;
}

void Collective::copy_in() {
  while (begun_ != posted_ &&
         ops_[begun_ % kRequestsMax].told == ops_[begun_ % kRequestsMax].bytes) {
    ++begun_;  // those of no bytes, too
  }
  if (begun_ == posted_ || told_ - copied_ == kSlots || !broken_.empty()) return;
  Op& op = ops_[begun_ % kRequestsMax];
  Segment& segment = segments_[told_ % kSlots];
  segment.op = &op;
  segment.offset = op.told;
  segment.bytes = std::min<std::uint64_t>(kSegmentBytes, op.bytes - op.told);
  char* memory = memory_of(told_);
  std::memcpy(memory, op.input + segment.offset, segment.bytes);
  if (gw_all_reduce(group_, memory, memory, segment.bytes / op.element_bytes, op.datatype, op.redop,
                    0, &segment.work) != GW_OK) {
    broken_ = gw_last_error();
    return;
  }
  ++told_;
  op.told += segment.bytes;
  // At once: when it is through, its place is another op's.
  if (op.told == op.bytes) ++begun_;
}

}  // namespace gradwire::nccl_net
