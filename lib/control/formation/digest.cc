// SPDX-License-Identifier: BSD-3-Clause
// The digest of a table: what two ranks compare to know that theirs are equal.
#include <span>
#include <vector>

#include "base/sip_hash.h"
#include "control/formation/table.h"

namespace gradwire::control {
namespace {

constexpr std::uint32_t kFoldingLabel = 0x666f6c64;  // no rank is as large as half of it
constexpr std::uint32_t kTilesLabel = 0x74696c65;
constexpr std::uint32_t kTransfersLabel = 0x78666572;

/// Digest key: only to keep this hash apart from others, no secret ("gradwire", "table v1").
constexpr SipHashKey kDigestKey = {0x6772616477697265, 0x7461626c65207631};

/// Bytes for the digest: fields one by one, lowest byte first, so that neither padding nor the
/// machine's byte order comes in.
class Bytes {
 public:
  template <class T>
  void add(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
    }
  }
  void add(const ipc::RankInfo& info) {
    add(info.magic);
    add(info.version);
    add(info.bytes);
    add(info.incarnation);
    add(info.max_payload_bytes);
    add(info.features);
    add(info.base_udp_port);
    add(info.lanes);
    add(info.address_count);
    add(info.reserved);
    add(info.secret);
    add(info.checksum);
    for (const ipc::RankAddress& address : info.addresses) {
      add_bytes(address.ip);
      add(address.family);
      add(address.prefix_bits);
      add(address.routed);
      add(address.single_peer);
      add(address.rail);
    }
    add(info.direct_kib);
    add(info.fold_sources);
    add(info.transfers);
    add(info.two_step_kib);
    add(info.gathered_kib);
    add(info.gathered_ranks);
    add(info.two_step_owner);
    add(info.folding);
    add(info.source_ports);
    add(info.tiles);
    add(info.formats);
    add(info.tiles_wanted);
    add(info.packet_ns);
    add(info.byte_ps);
    add(info.hop_ns);
    for (const std::uint16_t rate : info.rates) add(rate);
    add_bytes(info.keys);
  }
  void add_bytes(std::span<const std::uint8_t> bytes) {
    const auto more = std::as_bytes(bytes);
    bytes_.insert(bytes_.end(), more.begin(), more.end());
  }
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

std::vector<std::byte> bytes_of_table(const GroupKey& key, std::uint16_t member_count,
                                      const Agreement& agreement,
                                      std::span<const ipc::RankInfo> table, const GroupUse& use) {
  Bytes bytes;
  bytes.reserve(table.size_bytes() + kMaxMembers);
  bytes.add(key.group_id);
  bytes.add(key.epoch);
  bytes.add(static_cast<std::uint16_t>(table.size()));
  // If ranks differ in members, each would say another number.
  bytes.add(agreement.layout ? std::uint16_t{0} : member_count);
  bytes.add(agreement.payload_bytes);
  bytes.add(agreement.lanes);
  bytes.add(agreement.features);
  for (const ipc::RankInfo& info : table) bytes.add(info);
  if (agreement.layout) {
    for (const std::uint16_t rank : agreement.layout->ranks()) bytes.add(rank);
  }
  // A daemon of an older release hashes an owner's entry alike, and would take all for owners.
  for (std::size_t rank = 0; rank < table.size(); ++rank) {
    if (table[rank].two_step_owner != 0) bytes.add(static_cast<std::uint16_t>(rank));
  }
  // One of an older release knows no ranks without members, and would give each some.
  if (use.folding_ranks != 0) {
    bytes.add(kFoldingLabel);
    bytes.add(use.folding_ranks);
  }
  // So it is for ops by tiles.
  if (use.tiles) bytes.add(kTilesLabel);
  // One with another model would choose otherwise.
  if (use.tile_model != 0) bytes.add(use.tile_model);
  // One that wants ops, too, would ping, and wait for answers.
  if (use.transfers_alone) bytes.add(kTransfersLabel);
  return bytes.take();
}

}  // namespace

std::uint64_t table_digest(const GroupKey& key, std::uint16_t member_count,
                           const Agreement& agreement, std::span<const ipc::RankInfo> table,
                           const GroupUse& use) {
  return sip_hash(kDigestKey, bytes_of_table(key, member_count, agreement, table, use));
}

security::Sha256 table_hash(const GroupKey& key, std::uint16_t member_count,
                            const Agreement& agreement, std::span<const ipc::RankInfo> table,
                            const GroupUse& use) {
  return security::sha256(bytes_of_table(key, member_count, agreement, table, use));
}

}  // namespace gradwire::control
