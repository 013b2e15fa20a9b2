// SPDX-License-Identifier: BSD-3-Clause
#include "collective/direct/early_contributions.h"

#include <cstring>

#include "base/require.h"

namespace gradwire::collective {

using wire::Drop;

EarlyContributions::EarlyContributions(const std::vector<std::uint16_t>& ranks,
                                       const std::vector<std::uint32_t>& bytes,
                                       ShardCounters& counters)
    : ranks_(ranks), counters_(counters), places_(bytes.size()) {
  std::size_t total = 0;
  for (const std::uint16_t rank : ranks) {
    places_[rank].bytes = bytes[rank];
    total += DirectPeer::kFloor * bytes[rank];
  }
  memory_ = ZeroedArray<std::byte>(total);
  std::byte* place = memory_.data();
  for (const std::uint16_t rank : ranks) {
    for (EarlyContribution& early : places_[rank].early) {
      early.payload = place;
      place += bytes[rank];
    }
  }
}

Drop EarlyContributions::keep(const wire::Packet& packet) noexcept {
  const wire::DataHeader& header = packet.data;
  Places& places = places_[packet.common.from_rank];
  EarlyContribution* place = nullptr;
  for (EarlyContribution& early : places.early) {
    if (early.op_seq == header.op_seq && early.chunk == header.chunk) return Drop::kDuplicate;
    if (early.op_seq == 0) place = &early;
  }
  if (place == nullptr) return Drop::kEagerOverflow;
  if (packet.payload.size() > places.bytes) return Drop::kBadChunk;
  if (!wire::payload_crc_ok(packet)) return Drop::kPayloadCrc;
  std::memcpy(place->payload, packet.payload.data(), packet.payload.size());
  place->op_seq = header.op_seq;
  place->chunk = header.chunk;
  place->step = header.step;
  place->since = header.since;
  place->bytes = static_cast<std::uint32_t>(packet.payload.size());
  place->call = call_of(header);
  ++held_;
  oldest_.reset();
  ++counters_.early_packets;
  return Drop::kNone;
}

std::optional<EarlyContributions::Ahead> EarlyContributions::take(std::uint64_t op_seq) noexcept {
  // It is asked again until it has none. Those of ranks that were gone through stay gone through:
  // what comes of an op that is posted is not kept.
  if (taken_of_ != op_seq) taken_from_ = 0;
  taken_of_ = op_seq;
  for (; held_ > 0 && taken_from_ < places_.size(); ++taken_from_) {
    for (EarlyContribution& early : places_[taken_from_].early) {
      if (early.op_seq != op_seq) continue;
      const Ahead found{taken_from_, early};
      early.op_seq = 0;
      --held_;
      oldest_.reset();
      return found;
    }
  }
  taken_of_ = 0;
  return {};
}

const std::optional<EarlyContributions::Ahead>& EarlyContributions::oldest() noexcept {
  if (held_ == 0 || oldest_) return oldest_;
  for (const std::uint16_t rank : ranks_) {
    for (const EarlyContribution& early : places_[rank].early) {
      if (early.op_seq == 0) continue;
      if (oldest_ && oldest_->contribution.op_seq <= early.op_seq) continue;
      oldest_ = Ahead{rank, early};
    }
  }
  require(oldest_.has_value(), "what is held came from one of the others");
  return oldest_;
}

}  // namespace gradwire::collective
