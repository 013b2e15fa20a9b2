// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The buffers of a shard's packets, and how many of them the shard may hold: its budget, from
/// which credit follows. Payloads lie behind their header in one mbuf, or, in a GPU's memory,
/// in mbufs of their own. One lane owns it; the mempools are its configuration's.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/ops/chunk.h"
#include "collective/shard_config.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace gradwire::collective {

/// Makes `mbuf` the frame of a payload that alloc_on_host() gave with it.
/// @param bytes  of the payload.
/// @param to     what the frame begins with; `port` is the index of the lane's port by which it
/// goes.
/// @return where its header belongs.
[[nodiscard]] inline std::span<std::byte, wire::kHeaderBytes> frame_around(
    rte_mbuf& mbuf, std::byte* payload, std::uint32_t bytes, const wire::FrameTemplate& to,
    std::uint16_t port) noexcept {
  std::byte* const header = payload - wire::kHeaderBytes;
  std::byte* const frame = header - to.bytes();
  mbuf.data_off = static_cast<std::uint16_t>(frame - static_cast<std::byte*>(mbuf.buf_addr));
  mbuf.data_len = static_cast<std::uint16_t>(to.bytes() + wire::kHeaderBytes + bytes);
  mbuf.pkt_len = mbuf.data_len;
  mbuf.ol_flags = 0;
  mbuf.port = port;
  to.write(frame, wire::kHeaderBytes + bytes);
  return std::span<std::byte, wire::kHeaderBytes>(header, wire::kHeaderBytes);
}

class PacketBuffers {
 public:
  /// @param frame_bytes  before a packet: Ethernet, IP and UDP.
  PacketBuffers(const ShardConfig& config, std::size_t frame_bytes) noexcept
      : config_(config),
        header_bytes_(frame_bytes + wire::kHeaderBytes),
        tag_bytes_(config.seals != nullptr ? wire::kSealTagBytes : 0) {}

  /// Whether a GPU reads and writes payloads, and the CPU does not.
  [[nodiscard]] bool on_device() const noexcept { return config_.payload_pool != nullptr; }
  /// Whether nobody else has the received payload: it may be written to.
  [[nodiscard]] bool exclusive(const rte_mbuf* mbuf) const noexcept {
    return config_.received_mbufs_are_exclusive ||
           (rte_mbuf_refcnt_read(mbuf) == 1 && (RTE_MBUF_DIRECT(mbuf) || on_device()));
  }
  /// Room for a payload of full length, and before it for its headers if the CPU writes it.
  /// @return nullptr if there is none.
  [[nodiscard]] rte_mbuf* alloc(std::byte*& payload) const noexcept {
    return on_device() ? alloc_on_device(payload) : alloc_on_host(payload);
  }
  /// As alloc(), but the CPU writes it, wherever other payloads lie.
  [[nodiscard]] rte_mbuf* alloc_on_host(std::byte*& payload) const noexcept {
    rte_mbuf* const mbuf = rte_pktmbuf_alloc(config_.packet_pool);
    if (mbuf == nullptr) return nullptr;
    // The payload begins on a cache line if the buffer has room for that.
    const std::size_t aligned = (kLeastOffset + header_bytes_ + 63) / 64 * 64;
    const bool fits = aligned + config_.payload_bytes + tag_bytes_ <= mbuf->buf_len;
    payload =
        static_cast<std::byte*>(mbuf->buf_addr) + (fits ? aligned : kLeastOffset + header_bytes_);
    return mbuf;
  }
  /// Copies a payload that the CPU reads to a buffer of its own, and lets go of the one it was in.
  /// @return whether there was one; if not, nothing has changed.
  [[nodiscard, gnu::noinline]] bool move_to_own(rte_mbuf*& mbuf, std::byte*& payload,
                                                std::uint32_t bytes) const noexcept;
  /// @return a header's mbuf with the chunk's payload, on a GPU, behind it; nullptr if there is
  /// none to be had.
  [[nodiscard]] rte_mbuf* chain_header(const ReadyChunk& chunk) const noexcept;

  /// Chunks that the shard can hold for which there is no work yet: in flight to the next rank,
  /// waiting to go there, and early.
  [[nodiscard]] std::uint64_t chunks_held() const noexcept {
    return config_.window_packets + config_.transit_packets + config_.eager_packets;
  }

 private:
  static constexpr std::size_t kLeastOffset = RTE_PKTMBUF_HEADROOM;

  [[nodiscard]] rte_mbuf* alloc_on_device(std::byte*& payload) const noexcept;

  const ShardConfig& config_;
  const std::size_t header_bytes_;  ///< of a frame that carries data, before its payload
  const std::size_t tag_bytes_;     ///< and behind it, if packets are sealed
};

}  // namespace gradwire::collective
