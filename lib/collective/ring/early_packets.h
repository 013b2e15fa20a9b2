// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Packets that came before they could be taken: of an op that the client here has not posted yet,
/// or whose fold would overwrite what this rank has still to read. They were acknowledged, so they
/// are never dropped while the group lives. One lane owns it; it allocates at construction only.
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collective/ops/op_table.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// A packet of data, apart from its place among the link's packets.
struct EarlyPacket {
  rte_mbuf* mbuf = nullptr;
  std::byte* payload = nullptr;
  std::uint32_t crc = 0;
  LinkIndex link = 0;  ///< by which it came
  wire::DataHeader header;
};

class EarlyPackets {
 public:
  /// @param eager    packets that may come ahead of their op's grant.
  /// @param transit  packets that may wait to go on; early ones may take what of that is free.
  EarlyPackets(std::uint32_t eager, std::uint32_t transit) : eager_(eager), transit_(transit) {
    packets_.reserve(std::size_t{eager} + transit);
  }

  [[nodiscard]] bool empty() const noexcept { return packets_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return packets_.size(); }
  /// Places of transit that early packets have taken.
  [[nodiscard]] std::size_t transit_taken() const noexcept {
    return packets_.size() - std::min<std::size_t>(packets_.size(), eager_);
  }
  [[nodiscard]] bool holds(const wire::DataHeader& header) const noexcept;
  [[nodiscard]] bool has_any_of(std::uint64_t op_seq) const noexcept;
  /// @param in_transit  places of transit that are taken otherwise.
  [[nodiscard]] bool has_place(const wire::DataHeader& header, std::size_t in_transit,
                               const OpTable& ops) const noexcept;
  void add(const EarlyPacket& packet) noexcept;
  /// The op of the oldest packet that may be taken now; 0 if none may.
  [[nodiscard]] std::uint64_t op_that_may_go(const OpTable& ops) const noexcept;
  /// Takes the first packet from index `from` on that is of the op and may go; `from` moves on to
  /// where the next search begins.
  /// @return whether there was one.
  [[nodiscard]] bool take(std::uint64_t op_seq, const OpTable& ops, std::size_t& from,
                          EarlyPacket& out) noexcept;
  void free_all() noexcept;

 private:
  std::uint32_t eager_;
  std::uint32_t transit_;
  std::vector<EarlyPacket> packets_;
};

}  // namespace gradwire::collective
