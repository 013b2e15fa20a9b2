// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Contributions that came before their op was posted here: each other rank has some places, and
/// what finds none is sent again. One lane owns it; it allocates at construction only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/zeroed_array.h"
#include "collective/direct/direct_peer.h"
#include "collective/ops/chunk.h"
#include "collective/shard_status.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// A contribution that came before its op was posted here.
struct EarlyContribution {
  std::uint64_t op_seq = 0;  ///< 0: the place is free
  std::uint32_t chunk = 0;
  std::uint32_t bytes = 0;
  std::uint8_t step = 0;   ///< as wire::DataHeader's
  std::uint8_t since = 0;  ///< likewise
  OpCall call;
  std::byte* payload = nullptr;  ///< of the place
};

class EarlyContributions {
 public:
  /// The payload holds until the next packet comes.
  struct Ahead {
    std::uint16_t rank = 0;
    EarlyContribution contribution;
  };

  /// @param ranks   whose contributions are kept, in the order in which told ops are looked for;
  ///                they and the counters outlive it.
  /// @param bytes   [all ranks] of each place of a rank.
  EarlyContributions(const std::vector<std::uint16_t>& ranks,
                     const std::vector<std::uint32_t>& bytes, ShardCounters& counters);

  /// A contribution to an op that is not posted here. @return why it was not kept.
  [[nodiscard]] wire::Drop keep(const wire::Packet& packet) noexcept;
  /// Whether the rank's first place is taken.
  [[nodiscard]] bool has_from(std::uint16_t rank) const noexcept {
    return places_[rank].early[0].op_seq != 0;
  }
  /// What came for an op that is posted now, one after the other; its place is free again.
  [[nodiscard]] std::optional<Ahead> take(std::uint64_t op_seq) noexcept;
  /// Of the oldest op; none if nothing is kept.
  [[nodiscard]] const std::optional<Ahead>& oldest() noexcept;

 private:
  struct Places {
    std::array<EarlyContribution, DirectPeer::kFloor> early{};
    std::uint32_t bytes = 0;  ///< of each
  };

  const std::vector<std::uint16_t>& ranks_;
  ShardCounters& counters_;
  std::vector<Places> places_;  ///< [all ranks]
  ZeroedArray<std::byte> memory_;
  std::uint32_t held_ = 0;
  /// take() goes on at that rank, as long as it is asked for the same op.
  std::uint64_t taken_of_ = 0;
  std::uint16_t taken_from_ = 0;
  std::optional<Ahead> oldest_;  ///< as long as nothing that is held came or went
};

}  // namespace gradwire::collective
