// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The types of packets of the chunk protocol, and what follows from a type alone
/// (doc/protocol/frame.md). Any thread; nothing here allocates.
#pragma once

#include <cstdint>

namespace gradwire::wire {

enum class PacketType : std::uint8_t {
  kHello = 1,     ///< upstream -> downstream, padded to the full packet size
  kHelloAck = 2,  ///< downstream -> upstream, padded likewise
  kData = 3,      ///< down: a chunk; acknowledged
  kPing = 4,      ///< down: no payload; may ask for a call; acknowledged
  kAck = 5,       ///< up: ranges, delay, credit, a call
  kAbort = 6,     ///< both ways, not acknowledged, repeated
  kBye = 7,       ///< both ways: all ops up to `op_seq` are finished here; answered by kByeAck
  kByeAck = 8,
  kProgressCheck = 9,  ///< down, round the whole ring and back to who asks; not acknowledged
  // Between any two ranks; receipts, which a contribution brings too, acknowledge contributions.
  kContribution = 10,  ///< a chunk of what a rank gives to a direct op
  kReceipt = 11,       ///< what of the other rank's has come
  kInquiry = 12,       ///< a receipt, and a question: answered by a receipt
  // Between any two ranks, of a transfer from one process to another.
  kPiece = 13,  ///< a chunk of it
  kOffer = 14,  ///< that it is posted at its source
  kPull = 15,   ///< what has come of it, and which chunks are to be sent
  // Between any two ranks, of an op by tiles.
  kTilePiece = 16,  ///< a chunk: a part to its owner, or a result from there
  kTileCall = 17,   ///< what was called, or that nothing has been yet
  kTilePull = 18,   ///< what has come, what may be sent, and how much is folded
};
inline constexpr PacketType kLastPacketType = PacketType::kTilePull;
/// Whether it may go between any two ranks.
[[nodiscard]] constexpr bool goes_to_any_rank(PacketType type) noexcept {
  return type >= PacketType::kContribution;
}
/// Whether it is about a transfer between two processes.
[[nodiscard]] constexpr bool is_of_transfer(PacketType type) noexcept {
  return type >= PacketType::kPiece && type <= PacketType::kPull;
}
/// Whether it is about an op by tiles.
[[nodiscard]] constexpr bool is_of_tiles(PacketType type) noexcept {
  return type >= PacketType::kTilePiece;
}
/// Whether its payload is a chunk, of which the receiver checks the CRC when it takes it.
[[nodiscard]] constexpr bool carries_chunk(PacketType type) noexcept {
  return type == PacketType::kData || type == PacketType::kContribution ||
         type == PacketType::kPiece || type == PacketType::kTilePiece;
}
/// Whether a packet of that type makes its receiver send an acknowledgement.
[[nodiscard]] constexpr bool wants_ack(PacketType type) noexcept {
  return type == PacketType::kData || type == PacketType::kPing;
}

}  // namespace gradwire::wire
