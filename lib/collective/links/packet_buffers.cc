// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/packet_buffers.h"

namespace gradwire::collective {

rte_mbuf* PacketBuffers::alloc(std::byte*& payload) const noexcept {
  return on_device() ? alloc_on_device(payload) : alloc_on_host(payload);
}

rte_mbuf* PacketBuffers::alloc_on_host(std::byte*& payload) const noexcept {
  rte_mbuf* mbuf = rte_pktmbuf_alloc(config_.packet_pool);
  if (mbuf == nullptr) return nullptr;
  // The payload begins on a cache line if the buffer has room for that.
  std::size_t offset = RTE_PKTMBUF_HEADROOM + header_bytes_;
  const std::size_t aligned = (offset + 63) / 64 * 64;
  if (aligned + config_.payload_bytes <= mbuf->buf_len) offset = aligned;
  payload = static_cast<std::byte*>(mbuf->buf_addr) + offset;
  return mbuf;
}

rte_mbuf* PacketBuffers::alloc_on_device(std::byte*& payload) const noexcept {
  rte_mbuf* mbuf = rte_pktmbuf_alloc(config_.payload_pool);
  if (mbuf == nullptr) return nullptr;
  mbuf->data_off = 0;  // the buffer's start is aligned, and no header comes before it
  payload = rte_pktmbuf_mtod(mbuf, std::byte*);
  return mbuf;
}

rte_mbuf* PacketBuffers::chain_header(const ReadyChunk& chunk) const noexcept {
  rte_mbuf* header = rte_pktmbuf_alloc(config_.packet_pool);
  if (header == nullptr) return nullptr;
  chunk.mbuf->data_len = static_cast<std::uint16_t>(chunk.bytes);
  chunk.mbuf->pkt_len = chunk.bytes;
  header->data_len = static_cast<std::uint16_t>(header_bytes_);
  header->pkt_len = header->data_len + chunk.bytes;
  header->next = chunk.mbuf;
  header->nb_segs = 2;
  return header;
}

}  // namespace gradwire::collective
