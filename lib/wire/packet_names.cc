// SPDX-License-Identifier: BSD-3-Clause
#include "wire/packet.h"

namespace gradwire::wire {

const char* name_of(TransferCall call) noexcept {
  switch (call) {
    case TransferCall::kSendRecv:
      return "send and recv";
    case TransferCall::kAllToAll:
      return "all-to-all";
    case TransferCall::kGather:
      return "gather";
    case TransferCall::kScatter:
      return "scatter";
  }
  return "call?";
}

const char* name_of(Drop drop) noexcept {
  switch (drop) {
    case Drop::kNone:
      return "none";
    case Drop::kShort:
      return "short";
    case Drop::kForeign:
      return "foreign";
    case Drop::kVersion:
      return "version";
    case Drop::kType:
      return "type";
    case Drop::kHeaderCrc:
      return "header_crc";
    case Drop::kPayloadCrc:
      return "payload_crc";
    case Drop::kMalformed:
      return "malformed";
    case Drop::kUnknownGroup:
      return "unknown_group";
    case Drop::kDuplicate:
      return "duplicate";
    case Drop::kReplay:
      return "replay";
    case Drop::kBadChunk:
      return "bad_chunk";
    case Drop::kEagerOverflow:
      return "eager_overflow";
    case Drop::kNoBuffer:
      return "no_buffer";
    case Drop::kState:
      return "state";
    case Drop::kToken:
      return "token";
    case Drop::kOpAhead:
      return "op_ahead";
    case Drop::kCount:
      break;
  }
  return "drop?";
}

}  // namespace gradwire::wire
