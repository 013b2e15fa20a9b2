// SPDX-License-Identifier: BSD-3-Clause
#include "collective/links/packet_buffers.h"

#include <cstring>

namespace gradwire::collective {

rte_mbuf* PacketBuffers::alloc_on_device(std::byte*& payload) const noexcept {
  rte_mbuf* mbuf = rte_pktmbuf_alloc(config_.payload_pool);
  if (mbuf == nullptr) return nullptr;
  mbuf->data_off = 0;  // the buffer's start is aligned, and no header comes before it
  payload = rte_pktmbuf_mtod(mbuf, std::byte*);
  return mbuf;
}

bool PacketBuffers::move_to_own(rte_mbuf*& mbuf, std::byte*& payload,
                                std::uint32_t bytes) const noexcept {
  std::byte* to = nullptr;
  rte_mbuf* const copy = alloc_on_host(to);
  if (copy == nullptr) return false;
  std::memcpy(to, payload, bytes);
  rte_pktmbuf_free(mbuf);
  mbuf = copy;
  payload = to;
  return true;
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
