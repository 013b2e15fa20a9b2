// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// A chunk on its way: its op, and the place of its bytes. Plain data; one lane owns it.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/collective_call.h"
#include "base/types.h"
#include "base/wire_format.h"
#include "collective/ops/op_spec.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// What a rank called; it must be equal on every rank. It is small, because it is compared for
/// every packet and each chunk has one.
struct OpCall {
  std::uint64_t count = 0;  ///< elements, as in OpSpec
  std::uint32_t tag = 0;
  std::uint16_t root = wire::kNoRoot;
  std::uint8_t kinds = 0;  ///< collective and datatype, 4 bits each
  std::uint8_t how = 0;    ///< redop and format, 4 bits each

  [[nodiscard]] Collective collective() const noexcept {
    return static_cast<Collective>(kinds >> 4);
  }
  [[nodiscard]] DataType datatype() const noexcept { return static_cast<DataType>(kinds & 0xf); }
  [[nodiscard]] RedOp redop() const noexcept { return static_cast<RedOp>(how & 0xf); }
  [[nodiscard]] WireFormat wire() const noexcept { return static_cast<WireFormat>(how >> 4); }
  friend bool operator==(const OpCall& a, const OpCall& b) noexcept {
    using Words = std::array<std::uint64_t, 2>;
    const auto x = std::bit_cast<Words>(a);
    const auto y = std::bit_cast<Words>(b);
    return ((x[0] ^ y[0]) | (x[1] ^ y[1])) == 0;
  }
};
static_assert(sizeof(OpCall) == 16 && kRedOps.size() <= 16 && kWireFormats.size() <= 16);
[[nodiscard]] constexpr std::uint8_t kinds_of(Collective collective, DataType datatype) noexcept {
  return static_cast<std::uint8_t>(static_cast<unsigned>(collective) << 4 |
                                   static_cast<unsigned>(datatype));
}
[[nodiscard]] constexpr std::uint8_t how_of(RedOp redop,
                                            WireFormat wire = WireFormat::kSame) noexcept {
  return static_cast<std::uint8_t>(static_cast<unsigned>(wire) << 4 | static_cast<unsigned>(redop));
}
[[nodiscard]] inline CallText text_of(const OpCall& call) noexcept {
  return gradwire::text_of({call.collective(), call.datatype(), call.redop(), call.count,
                            call.root == wire::kNoRoot ? 0u : call.root, call.tag, call.wire()});
}
[[nodiscard]] inline OpCall call_of(const wire::DataHeader& header) noexcept {
  return {header.total_count, header.tag, header.root, kinds_of(header.collective, header.datatype),
          how_of(header.redop)};
}
[[nodiscard]] inline OpCall call_of(const wire::TileHeader& header) noexcept {
  return {header.total_count, header.tag, header.root, kinds_of(header.collective, header.datatype),
          how_of(header.redop, header.format)};
}

/// What the packets of an op say of it: all but their own places.
/// @tparam Header  of data, or of tiles.
template <class Header = wire::DataHeader>
[[nodiscard]] Header header_of(std::uint64_t op_seq, const OpCall& call) noexcept {
  Header header;
  header.op_seq = op_seq;
  header.total_count = call.count;
  header.tag = call.tag;
  header.datatype = call.datatype();
  header.redop = call.redop();
  header.collective = call.collective();
  header.root = call.root;
  if constexpr (requires { header.format; }) header.format = call.wire();
  return header;
}

/// Everything about a packet of data but its bytes.
struct ChunkId {
  std::uint64_t op_seq = 0;
  std::uint32_t chunk = 0;
  std::uint16_t hop = 0;
  bool holds_credit = false;  ///< until it is acknowledged: see OpRules::holds
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
