// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Data packets of a receive burst, as runs: those of one link that come one after the other and
/// are alike. What a run has in common is found out once, and its shard gets it as a whole. One
/// lane owns it; it allocates nothing.
#pragma once

#include <rte_mbuf.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/require.h"
#include "collective/links/data_run.h"
#include "collective/shard.h"
#include "wire/alike.h"
#include "wire/sealed.h"

namespace gradwire::collective {

class DataRuns {
 public:
  /// Takes a frame if it is alike to the one that was remembered.
  /// @param port   by which it came: whose addresses a frame must have is the port's.
  /// @param frame  its bytes, which lie in `mbuf`, in one piece.
  [[nodiscard, gnu::always_inline]] bool take(std::uint16_t port, std::span<const std::byte> frame,
                                              rte_mbuf* mbuf) noexcept {
    if (port != port_ || count_ == packets_.size() || !frames_.is_alike(frame)) return false;
    const std::byte* packet = frames_.payload_of(frame.data());
    RunPacket& taken = packets_[count_];
    if (!data_.read(packet, address_crc_, taken.place)) return false;
    if (run_.from.sealed && !open(mbuf, packet, taken.place)) [[unlikely]]
      return true;
    taken.mbuf = mbuf;
    taken.payload = const_cast<std::byte*>(packet) + wire::kHeaderBytes;
    ++count_;
    return true;
  }
  /// Takes the first packet of a run, and remembers it. No run is under way.
  /// @param frame, view  which parse_frame() has parsed: of a sealed packet as it came, with its
  ///                     tag.
  /// @param packet       its payload, which was opened if it was sealed, and decoded.
  void begin(Shard& shard, const PacketSource& from, const wire::Packet& packet, bool ecn_ce,
             std::uint16_t port, std::span<const std::byte> frame, const wire::FrameView& view,
             rte_mbuf* mbuf) noexcept {
    require(count_ == 0 && from.drop == wire::Drop::kNone, "a run begins when the last has ended");
    shard_ = &shard;
    run_ = run_of(from, packet, ecn_ce);
    packets_[count_++] = only_of(packet, mbuf);
    port_ = port;
    address_crc_ = wire::address_crc(view.source_ip, view.destination_ip);
    common_ = packet.common;
    frames_.remember(frame, view);
    data_.remember(view.payload);
  }
  /// Hands the run that is under way, if there is one, to its shard. It comes before a shard gets
  /// any other packet, and at the end of a burst. The next run may go on with the same shard.
  void end(TimeNs now) noexcept {
    if (count_ == 0) return;
    run_.packets = {packets_.data(), count_};
    count_ = 0;
    shard_->on_data(run_, now);
  }
  /// Shards come or go, or the packets that are theirs may be others now.
  void forget() noexcept {
    require(count_ == 0, "no packet of a run is forgotten");
    frames_.forget();
  }

  // About the run that is under way, or the last one.
  [[nodiscard]] bool is_of(const Shard& shard, bool ecn_ce) const noexcept {
    return shard_ == &shard && run_.ecn_ce == ecn_ce;
  }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] const RunPacket& newest() const noexcept {
    require(count_ != 0, "a run that is under way has a packet");
    return packets_[count_ - 1];
  }
  /// Whether the decoded packet has in common with the run what a run's packets have.
  [[nodiscard]] bool goes_on_with(const PacketSource& from,
                                  const wire::Packet& packet) const noexcept {
    wire::DataHeader header = packet.data;
    header.chunk = run_.header.chunk;
    header.hop = run_.header.hop;
    return from.link == run_.from.link && from.path == run_.from.path &&
           packet.common.lane == run_.lane && packet.payload.size() == run_.payload_bytes &&
           header == run_.header;
  }

 private:
  static constexpr std::size_t kMost = 64;

  /// @return whether it was opened; if not, it is counted and freed.
  [[nodiscard]] bool open(rte_mbuf*& mbuf, const std::byte*& packet,
                          wire::DataPlace& place) noexcept {
    common_.packet_number = place.packet_number;
    std::span<const std::byte> opened(packet, frames_.payload_bytes());
    const wire::Drop drop = shard_->open(common_, mbuf, opened);
    if (drop == wire::Drop::kNone) {
      packet = opened.data();
      place.payload_crc = wire::payload_crc_of(packet);
      return true;
    }
    shard_->count_drop(drop);
    rte_pktmbuf_free(mbuf);
    return false;
  }

  Shard* shard_ = nullptr;
  DataRun run_;
  wire::CommonHeader common_;  ///< of the run's packets, but the number
  std::size_t count_ = 0;
  std::array<RunPacket, kMost> packets_;
  std::uint16_t port_ = 0;
  std::uint32_t address_crc_ = 0;
  wire::FrameMemory frames_;
  wire::DataMemory data_;
};

}  // namespace gradwire::collective
