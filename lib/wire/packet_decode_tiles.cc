// SPDX-License-Identifier: BSD-3-Clause
// The packets of doc/protocol/tiles.md.
#include "wire/packet_read.h"

namespace gradwire::wire::reading {
namespace {

constexpr std::uint8_t kBitsOfPiece = layout::kResult;
constexpr std::uint8_t kBitsOfCall = layout::kAsks | layout::kNotEntered;
constexpr std::uint8_t kBitsOfPull =
    layout::kAsks | layout::kResults | layout::kRepair | layout::kAll;

/// How long a piece is follows from op and chunk, which its receiver knows. With `same` it has
/// whole elements at least, and no more than the op.
Drop check_piece_bytes(std::size_t bytes, const TileHeader& tile) noexcept {
  if (bytes == 0) return Drop::kShort;
  if (tile.format != WireFormat::kSame) return Drop::kNone;
  const std::size_t each = element_bytes(tile.datatype);
  if (bytes < each) return Drop::kShort;
  return bytes % each == 0 && bytes / each <= tile.total_count ? Drop::kNone : Drop::kMalformed;
}

/// Whether a call that says that its op has not entered says nothing else of it.
bool says_nothing_else(const TileHeader& call) noexcept {
  TileHeader nothing;
  nothing.op_seq = call.op_seq;
  nothing.echo = call.echo;
  nothing.not_entered = true;
  nothing.again = call.again;
  return call == nothing;
}

/// Whether what is wanted again is something, and only what was granted and has not come.
bool wanted_fits(const TilePullHeader& pull) noexcept {
  const std::uint32_t granted = pull.grant - pull.first;
  std::uint64_t any = 0;
  for (std::uint32_t w = 0; w < pull.wanted.size(); ++w) {
    const std::uint32_t here = granted <= 64 * w ? 0 : granted - 64 * w;
    if (here < 64 && pull.wanted[w] >> here != 0) return false;
    any |= pull.wanted[w];
  }
  return any != 0;
}

}  // namespace

Drop read_tile(const layout::Header& header, Packet& out) noexcept {
  const auto& fields = view<layout::TileFields>(header.type_fields.data());
  const bool piece = out.common.type == PacketType::kTilePiece;
  const std::uint32_t number = fields.chunk.get();
  const std::uint8_t bits = fields.format_and_bits & 0xf;
  TileHeader& tile = out.tile;
  tile = {};
  tile.op_seq = fields.op_seq.get();
  tile.total_count = fields.total_count.get();
  (piece ? tile.chunk : tile.echo) = number;
  tile.tag = fields.tag.get();
  tile.redop = static_cast<RedOp>(fields.redop);
  tile.format = static_cast<WireFormat>(fields.format_and_bits >> 4);
  tile.result = (bits & layout::kResult) != 0;
  tile.asks = (bits & layout::kAsks) != 0;
  tile.not_entered = (bits & layout::kNotEntered) != 0;
  tile.since = fields.since;
  tile.again = (header.flags & layout::kAgain) != 0;
  if (tile.op_seq == 0 || fields.reserved.get() != 0 || !is_valid(tile.redop) ||
      !read_kinds(fields, tile) || (bits & ~(piece ? kBitsOfPiece : kBitsOfCall)) != 0 ||
      tile.since > (piece ? 0 : tile.op_seq)) {
    return Drop::kMalformed;
  }
  // No call has a format that is not in the table.
  if (!fits(tile.format, tile.collective, tile.redop, tile.datatype)) return Drop::kMalformed;
  if (piece) return check_piece_bytes(out.payload.size(), tile);
  if (tile.not_entered && !says_nothing_else(tile)) return Drop::kMalformed;
  return check_payload_bytes(out.payload.size(), 0);
}

Drop read_tile_pull(const layout::Header& header, Packet& out) noexcept {
  const auto& fields = view<layout::TilePullFields>(header.type_fields.data());
  TilePullHeader& pull = out.tile_pull;
  pull = {};
  pull.op_seq = fields.op_seq.get();
  pull.first = fields.first.get();
  pull.grant = fields.grant.get();
  pull.done = fields.done.get();
  pull.echo = fields.echo.get();
  pull.over = fields.over.get();
  pull.asks = (fields.bits & layout::kAsks) != 0;
  pull.results = (fields.bits & layout::kResults) != 0;
  pull.repair = (fields.bits & layout::kRepair) != 0;
  pull.all = (fields.bits & layout::kAll) != 0;
  pull.again = (header.flags & layout::kAgain) != 0;
  if (pull.op_seq == 0 || pull.first > pull.grant || pull.grant - pull.first > kTileGrantMax ||
      pull.over > pull.op_seq || (fields.bits & ~kBitsOfPull) != 0 || !all_zero(fields.reserved)) {
    return Drop::kMalformed;
  }
  if (pull.results && (pull.done != 0 || pull.over != 0)) return Drop::kMalformed;
  if (pull.all && (!pull.results || pull.grant != 0)) return Drop::kMalformed;
  const std::size_t bytes = out.payload.size();
  if (!pull.repair) return check_payload_bytes(bytes, 0);
  if (const Drop drop = check_payload_bytes(bytes, sizeof(layout::TileWanted));
      drop != Drop::kNone) {
    return drop;
  }
  const auto& wanted = view<layout::TileWanted>(out.payload.data());
  for (std::size_t i = 0; i < wanted.size(); ++i) pull.wanted[i] = wanted[i].get();
  return wanted_fits(pull) ? Drop::kNone : Drop::kMalformed;
}

}  // namespace gradwire::wire::reading
