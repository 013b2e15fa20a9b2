// SPDX-License-Identifier: BSD-3-Clause
#include <cstdio>

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

PairText text_of(const ProcessPair& pair) noexcept {
  PairText out;
  const auto source = static_cast<unsigned>(pair.source);
  const auto destination = static_cast<unsigned>(pair.destination);
  if (pair.stream == 0) {
    std::snprintf(out.text, sizeof out.text, "process %u to process %u", source, destination);
  } else {
    std::snprintf(out.text, sizeof out.text, "process %u to process %u, stream %u", source,
                  destination, static_cast<unsigned>(pair.stream));
  }
  return out;
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
    case Drop::kUnsealed:
      return "unsealed";
    case Drop::kGeneration:
      return "generation";
    case Drop::kTag:
      return "tag";
    case Drop::kCount:
      break;
  }
  return "drop?";
}

}  // namespace gradwire::wire
