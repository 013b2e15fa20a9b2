// SPDX-License-Identifier: BSD-3-Clause
#include "nccl_net/segments.h"

#include <cstring>

namespace gradwire::nccl_net {

void Segments::use(gw_group* group, std::uint32_t other, char* memory) {
  group_ = group;
  other_ = other;
  memory_ = memory;
}

Segments::Transfer& Segments::take_slot() {
  Transfer& transfer = at(tail_);
  transfer.ended = {};
  transfer.ended.slot = static_cast<std::uint32_t>(__builtin_ctz(free_));
  return transfer;
}

bool Segments::post(gw_call& call, Transfer& transfer) {
  call.struct_bytes = sizeof(call);
  call.datatype = GW_UINT8;
  call.root = other_;
  call.pair_stream = 1 + static_cast<std::uint32_t>(tail_ % kStreams);
  if (gw_post_more(group_, &call, &transfer.work) != GW_OK) {
    transfer.work = nullptr;
    if (broken_.empty()) broken_ = gw_last_error();
    return false;
  }
  free_ &= free_ - 1;
  ++tail_;
  ++under_way_;
  return true;
}

bool Segments::send(const SegmentHeader& header, const char* data, std::uint64_t bytes,
                    Connection* connection) {
  Transfer& transfer = take_slot();
  transfer.ended.connection = connection;
  transfer.ended.message = header.message;
  char* at = memory_ + std::uint64_t{transfer.ended.slot} * kSlotBytes;
  std::memcpy(at, &header, sizeof(header));
  if (bytes > 0) std::memcpy(at + sizeof(header), data, bytes);
  gw_call call{};
  call.collective = GW_SEND;
  call.input = at;
  call.count = sizeof(header) + bytes;
  return post(call, transfer);
}

bool Segments::receive() {
  Transfer& transfer = take_slot();
  gw_call call{};
  call.collective = GW_RECV;
  call.output = memory_ + std::uint64_t{transfer.ended.slot} * kSlotBytes;
  call.count = sizeof(SegmentHeader) + kSegmentBytes;
  call.up_to = 1;
  return post(call, transfer);
}

bool Segments::has_ended(Transfer& transfer) {
  int done = 0;
  const gw_status status = gw_test(transfer.work, &done);
  if (status == GW_OK && done == 0) return false;
  if (status == GW_OK) {
    transfer.ended.bytes = gw_work_bytes(transfer.work);
  } else {
    if (broken_.empty()) broken_ = gw_last_error();
    give_back(transfer.ended.slot);
  }
  gw_work_free(transfer.work);
  transfer.work = nullptr;
  --under_way_;
  return true;
}

void Segments::free_works() {
  for (; head_ != tail_; ++head_) {
    gw_work_free(at(head_).work);
    at(head_).work = nullptr;
  }
  under_way_ = 0;
}

}  // namespace gradwire::nccl_net
