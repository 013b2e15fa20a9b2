// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A chunk on its way: what it belongs to, and where its bytes lie. Plain data; one lane owns it.
#pragma once

#include <rte_mbuf.h>

#include <cstddef>
#include <cstdint>

#include "base/collective_call.h"
#include "base/types.h"
#include "collective/op_spec.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// What a rank called, and what must be equal on every rank.
struct OpCall {
  std::uint64_t count = 0;  ///< elements, as in OpSpec
  std::uint32_t tag = 0;
  std::uint32_t root = kNoRoot;
  Collective collective = Collective::kAllReduce;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;

  friend bool operator==(const OpCall&, const OpCall&) = default;
};
[[nodiscard]] inline CallText text_of(const OpCall& call) noexcept {
  return gradwire::text_of({call.collective, call.datatype, call.redop, call.count,
                            call.root == kNoRoot ? 0 : call.root, call.tag});
}
[[nodiscard]] inline OpCall call_of(const wire::DataHeader& header) noexcept {
  return {.count = header.total_count,
          .tag = header.tag,
          .datatype = header.datatype,
          .redop = header.redop};
}

/// Everything about a packet of data but its bytes.
struct ChunkId {
  std::uint64_t op_seq = 0;
  std::uint32_t chunk = 0;
  std::uint16_t hop = 0;
};

/// A payload ready to go: it lies in `mbuf`, which is ours alone.
struct ReadyChunk {
  rte_mbuf* mbuf = nullptr;
  std::byte* payload = nullptr;
  std::uint32_t bytes = 0;
  std::uint32_t crc = 0;
  ChunkId id;
  OpCall call;  ///< what its header says of its op, which may be long forgotten when it goes again
};

}  // namespace gradwire::collective
