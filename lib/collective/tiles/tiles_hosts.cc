// SPDX-License-Identifier: BSD-3-Clause
// What owners without members are told. No client posts ops there: each source tells of those of
// which it gives something, in their order, of few at once, and again until it hears that the owner
// has entered them.
#include "base/planted_bug.h"
#include "collective/tiles/tile_memory.h"
#include "collective/tiles/tiles.h"
#include "collective/tiles/told_calls.h"

namespace gradwire::collective {

/// The op is posted: in which order owners are told of it follows from that, though it may enter
/// later than ops of other shapes that are posted after it.
void Tiles::keep_since(const Op& op) noexcept {
  const TileCut cut = cut_of(config_, op.spec);
  for (std::uint16_t rank = config_.nranks; rank < config_.all_ranks(); ++rank) {
    if (cut.tiles(rank, config_.lane) == 0) continue;
    since_[since_place(op.spec.op_seq, rank)] = told_order_.tell(rank, op.spec.op_seq);
  }
}

void Tiles::offer_more(std::uint16_t owner, TimeNs now) noexcept {
  if (has_members(owner)) return;
  std::uint32_t on_way = 0;
  for (std::uint32_t i = 0; i < table_.size() && on_way < kCallsAhead; ++i) {
    TileOut& out = table_.parts_out(table_.at(i), owner);
    if (out.offer == TileOffer::kNone) continue;
    ++on_way;
    if (out.offer == TileOffer::kSaid) continue;
    out.offer = TileOffer::kSaid;
    want_call(table_.at(i), owner, false);
    watch(owner, now);
  }
}

/// The owner has entered that op, and so all before it of which it was told.
void Tiles::hear_told(std::uint16_t owner, std::uint64_t op_seq, TimeNs now) noexcept {
  bool news = false;
  for (std::uint32_t i = 0; i < table_.size() && table_.at(i).op_seq <= op_seq; ++i) {
    TileOut& out = table_.parts_out(table_.at(i), owner);
    if (out.offer == TileOffer::kNone) continue;
    out.offer = TileOffer::kNone;
    out.call_wanted = out.call_owed;
    news = true;
  }
  if (!news) return;
  has_news(owner, now);
  offer_more(owner, now);
}

}  // namespace gradwire::collective
