// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// The chunk protocol, version 2: what one UDP payload holds. doc/protocol is the
/// specification, with byte diagrams; this header follows it. Every packet starts with the same 64
/// bytes, in network byte order:
///
///     0  version u8 | type u8 | flags u8 | lane u8
///     4  group tag u32                  group_tag() of the group's id and epoch
///     8  packet number u64              from 1, never used twice on a link, whatever the type
///    16  30 bytes, by type
///    46  from rank u16
///    48  integrity, 16 bytes: header CRC32C u32 | payload CRC32C u32 | token u64
///    64  payload
///
/// Any thread; nothing here allocates; decode() trusts nothing it reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/abort_reason.h"
#include "base/types.h"
#include "base/wire_format.h"
#include "wire/drop.h"
#include "wire/packet_type.h"

namespace gradwire::wire {

inline constexpr std::uint8_t kProtocolVersion = 2;
inline constexpr std::size_t kHeaderBytes = 64;
/// Packet numbers go from 1 to here; decode() refuses others.
inline constexpr std::uint64_t kLastPacketNumber = std::uint64_t{1} << 62;
/// Flags that say that a packet is sealed: wire/sealed.h.
inline constexpr std::uint8_t kSealFlags = 6;
/// Ranges in one acknowledgement: what a 1,280-byte packet could hold is far more than is useful.
inline constexpr std::size_t kMaxAckRanges = 64;

struct CommonHeader {
  PacketType type = PacketType::kPing;
  std::uint8_t lane = 0;
  std::uint32_t group_tag = 0;
  std::uint64_t packet_number = 0;
  std::uint16_t from_rank = 0;
  std::uint64_t token = 0;  ///< of the link, from its sender to its receiver; the table gives it
  std::uint8_t sealed = 0;  ///< as received: kSealFlags; what is sent is sealed after it is encoded
};

/// What every packet of the group carries, so that its receiver finds the group. Two groups may
/// have the same one, by chance or since a user looked for it: the token of the link decides then.
[[nodiscard]] std::uint32_t group_tag(const GroupKey& key) noexcept;

inline constexpr std::uint16_t kNoRoot = 0xffff;
/// DataHeader::hop is below it.
inline constexpr std::uint32_t kHopsMax = 2 * (kMaxRanks - 1);

struct DataHeader {
  std::uint64_t op_seq = 0;       ///< first op of a group is 1
  std::uint64_t total_count = 0;  ///< elements, as the collective counts them, below 2^48
  std::uint32_t chunk = 0;        ///< chunk index in the op: segment * chunks_per_segment + i
  std::uint32_t tag = 0;          ///< the caller's, equal on every rank
  std::uint16_t count = 0;        ///< elements in this packet: as many as its payload has
  std::uint16_t hop = 0;          ///< 0 ... 2(nranks-1)-1; 0 in a contribution
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  Collective collective = Collective::kAllReduce;
  std::uint16_t root = kNoRoot;  ///< a process, of a collective that has a root
  std::uint8_t step = 0;         ///< of a contribution to a gathered op, and 1; else 0
  /// Of a contribution to a rank without members: how many ops ago its sender contributed to one
  /// there before, on this lane; op_seq if never. 0: 256 or more. Else 0.
  std::uint8_t since = 0;
  friend bool operator==(const DataHeader&, const DataHeader&) = default;
};
/// The most that DataHeader::step may be: log2 of kMaxRanks.
inline constexpr std::uint8_t kStepMax = 10;

/// See AckHeader::posted_onwards.
inline constexpr std::uint64_t kWordSpan = 0xffff;

/// What a rank tells another of the ops between the two. Absolute, and only rises: any later one
/// makes a lost one good.
struct Receipt {
  std::uint64_t entered = 0;   ///< the last op that was posted at the sender
  std::uint64_t received = 0;  ///< all contributions of ops up to this one have come from the
                               ///< receiver; at most `entered`. In a contribution 0 if it is
                               ///< kWordSpan or more below `entered`
  /// Of the first direct op above `received`, if it has entered: bit i is the lane's chunk i, and
  /// set if it has come. A contribution says none.
  std::uint64_t chunks = 0;
  std::uint32_t echo = 0;      ///< low half of the largest number of a contribution or inquiry that
                               ///< came; 0 in a contribution
  std::uint16_t delay_us = 0;  ///< since that one came (saturating)
  bool again = false;          ///< of an inquiry: those before it were not answered
};

/// Which call a transfer is a part of.
enum class TransferCall : std::uint8_t { kSendRecv, kAllToAll, kGather, kScatter };
inline constexpr TransferCall kLastTransferCall = TransferCall::kScatter;
[[nodiscard]] const char* name_of(TransferCall call) noexcept;

/// Two processes, from one to the other, and which of the orders that transfers between them have.
struct ProcessPair {
  std::uint16_t source = 0;
  std::uint16_t destination = 0;
  std::uint16_t stream = 0;
  friend bool operator==(const ProcessPair&, const ProcessPair&) = default;
};

/// "process 0 to process 2", and ", stream 5" of another than the first.
struct PairText {
  char text[64] = {};
};
[[nodiscard]] PairText text_of(const ProcessPair& pair) noexcept;

/// What both ends of a transfer must have called alike.
struct TransferTerms {
  std::uint64_t bytes = 0;
  std::uint32_t tag = 0;
  TransferCall call = TransferCall::kSendRecv;
  friend bool operator==(const TransferTerms&, const TransferTerms&) = default;
};
inline constexpr std::uint64_t kTransferBytesMax = std::uint64_t{1} << 48;
/// Sequences of a stream are below it.
inline constexpr std::uint64_t kTransferSequences = std::uint64_t{1} << 48;

/// Of a piece and of an offer.
struct OfferHeader {
  ProcessPair pair;
  std::uint64_t sequence = 0;  ///< of the pair's transfers; of an offer 0: none is posted yet
  TransferTerms terms;
  std::uint32_t chunk = 0;  ///< of a piece: among the lane's, from 0
  bool asks = false;        ///< of an offer: for a pull at once
  bool done = false;        ///< of an offer: the transfer is done at its source
  bool again = false;       ///< of an offer: those before it were not answered
};

struct PullHeader {
  ProcessPair pair;
  std::uint64_t sequence = 0;  ///< the last that is posted at the destination; 0: none
  std::uint64_t wanted = 0;    ///< bit i: chunk first + i is to be sent
  std::uint32_t first = 0;     ///< all chunks of the lane below it have come
  std::uint32_t echo = 0;      ///< low half of the number of the offer that it answers, else 0
  bool asks = false;           ///< for an offer at once
  bool complete = false;       ///< all has come
  bool again = false;          ///< those before it brought nothing
};

/// Of a tile piece and of a tile call: the op of which it is, and what was called.
struct TileHeader {
  std::uint64_t op_seq = 0;
  std::uint64_t total_count = 0;  ///< as in DataHeader
  std::uint32_t chunk = 0;        ///< of a piece: its number among its owner's on this lane
  std::uint32_t echo = 0;  ///< of a call: low half of the number of the tile pull that it answers,
                           ///< else 0
  std::uint32_t tag = 0;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  Collective collective = Collective::kAllReduce;
  std::uint16_t root = kNoRoot;
  WireFormat format = WireFormat::kSame;
  bool result = false;  ///< of a piece: its sender owns the chunk, else its receiver does
  bool asks = false;    ///< of a call: for a tile pull at once
  /// Of a call: the op has not entered at the sender; nothing but op_seq, echo and `again` is said.
  bool not_entered = false;
  std::uint8_t since = 0;  ///< of a call to an owner without members: as in DataHeader; else 0
  bool again = false;      ///< of a call: those before it were not answered
  friend bool operator==(const TileHeader&, const TileHeader&) = default;
};

/// The most chunks that a tile pull grants above those that have come.
inline constexpr std::uint32_t kTileGrantMax = 256;

/// All absolute. Chunks are those of the sender, if it owns them, else of the receiver.
struct TilePullHeader {
  std::uint64_t op_seq = 0;
  std::uint32_t first = 0;  ///< all chunks below it have come
  std::uint32_t grant = 0;  ///< all chunks below it may be sent; first + kTileGrantMax at most
  std::uint32_t done = 0;   ///< from an owner: so many of its tiles are folded; else 0
  std::uint32_t echo = 0;   ///< low half of the number of the tile call that it answers, else 0
  /// From an owner: how far below op_seq the op lies, and 1, up to which it knows that the receiver
  /// has all that it gets. 0: not said.
  std::uint16_t over = 0;
  bool asks = false;     ///< for a word at once
  bool results = false;  ///< the sender pulls results, else it is an owner who pulls parts
  bool repair = false;   ///< `wanted` is said
  bool all = false;      ///< of results: all of this op and of those before it has come
  bool again = false;    ///< those before it were not answered
  /// If `repair`: bit b of word w is chunk first + 64 w + b, which was granted before.
  std::array<std::uint64_t, kTileGrantMax / 64> wanted{};
  friend bool operator==(const TilePullHeader&, const TilePullHeader&) = default;
};

/// Packet numbers [first, last], both included.
struct AckRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  friend bool operator==(const AckRange&, const AckRange&) = default;
};

/// What a rank called, as its acknowledgements and byes say it to the rank before.
struct SaidCall {
  std::uint64_t op_seq = 0;  ///< 0: nothing is said, and all else is zero
  std::uint64_t digest = 0;  ///< of the calls of all ops up to it: see digest_of()
  std::uint64_t count = 0;   ///< the op's, as in DataHeader
  std::uint32_t tag = 0;
  DataType datatype = DataType::kFloat32;
  RedOp redop = RedOp::kSum;
  Collective collective = Collective::kAllReduce;
  std::uint16_t root = kNoRoot;
  WireFormat format = WireFormat::kSame;
  friend bool operator==(const SaidCall&, const SaidCall&) = default;
};
/// The digest of all calls up to that of `said`: of `before`, that of the op before it (0 if there
/// is none), and of its own number and call. What it says itself of a digest does not matter.
[[nodiscard]] std::uint64_t digest_of(std::uint64_t before, const SaidCall& said) noexcept;

struct AckHeader {
  std::uint64_t credit_chunks = 0;  ///< absolute: distinct chunks the peer may have sent so far
  std::uint64_t posted_op_seq = 0;  ///< highest op_seq that the client here has posted
  /// Highest that the clients of this rank and of all ranks after it, up to the last, have posted,
  /// and that all ranks' clients have. Less than kWordSpan below posted_op_seq; else 0: not said.
  std::uint64_t posted_onwards = 0;
  std::uint64_t posted_by_all = 0;
  std::uint32_t delay_ns = 0;      ///< since the largest number arrived whose packet wants an
                                   ///< acknowledgement (saturating)
  std::uint32_t ecn_ce_count = 0;  ///< packets seen with CE, modulo 2^32
  std::uint8_t range_count = 0;    ///< descending, disjoint, not adjacent; the first has the
                                   ///< largest packet number; 0 = nothing received yet
  std::array<AckRange, kMaxAckRanges> ranges{};  ///< travel as payload, under its CRC
  /// Of the last op that was posted here, or of the one that a ping asked for; travels as payload.
  SaidCall called;
};

/// Body of hello and hello-ack; travels as payload of fixed layout, then zero padding.
struct HelloBody {
  GroupKey key;
  std::uint64_t incarnation = 0;   ///< of the sender's daemon, random at its start
  std::uint64_t table_digest = 0;  ///< of the group's table: ranks, addresses, payload, lanes
  std::uint32_t features = 0;
  std::uint32_t payload_bytes = 0;  ///< the group's agreed chunk payload
  std::uint16_t from_rank = 0;
  std::uint16_t to_rank = 0;
  std::uint16_t nranks = 0;
  std::uint16_t lanes = 0;
  std::uint64_t credit_chunks = 0;  ///< hello-ack: as in AckHeader
  std::uint64_t posted_op_seq = 0;  ///< hello-ack: as in AckHeader
  /// From which of its source ports the sender sends this, and from which of them the last hello or
  /// hello-ack came that the sender heard: one more than their indices, 0 = not said.
  std::uint8_t source = 0;
  std::uint8_t heard_source = 0;
  /// Of the sender's table, so that an error can say how two differ.
  std::uint16_t members = 0;        ///< of each rank; 0: ranks differ, or processes' order does
  std::uint16_t folding_ranks = 0;  ///< ranks without members, which nranks counts too
};
/// The most source ports that a rank sends from to another, on a lane.
inline constexpr std::uint8_t kSourcePortsMax = 32;
/// The first port that a lane takes is the daemon's own of that lane. Further ones are these, lane
/// after lane: nobody listens there.
inline constexpr std::uint16_t kSourcePortFirst = 49'152;
inline constexpr std::uint32_t kSourcePorts = kMaxLanes * kSourcePortsMax;
inline constexpr std::size_t kHelloBodyBytes = 72;

struct ByeBody {
  std::uint64_t completed_op_seq = 0;  ///< every op up to this one is finished at the sender
  std::uint64_t digest = 0;            ///< of their calls: SaidCall::digest; 0: not said
  std::uint64_t posted_by_all = 0;     ///< of these: those that all ranks are known to have posted
};

/// Asks round the ring whether every rank has posted an op with which nothing moves. A rank that
/// has not posted it lets the question go no further.
struct ProgressCheckBody {
  std::uint64_t op_seq = 0;       ///< oldest unfinished op of the rank that asks
  std::uint64_t stalled_ns = 0;   ///< for so long nothing moved, on any rank that was asked so far
  std::uint16_t origin_rank = 0;  ///< who asks
};

/// A decoded packet. Which of the bodies is set follows from common.type. `payload` points into the
/// decoded bytes; for the types of carries_chunk() its CRC is not yet checked (payload_crc_ok()).
struct Packet {
  CommonHeader common;
  std::uint32_t payload_crc = 0;
  std::span<const std::byte> payload;
  DataHeader data;
  Receipt receipt;    ///< of a contribution, too
  OfferHeader offer;  ///< of a piece, too
  PullHeader pull;
  TileHeader tile;
  TilePullHeader tile_pull;
  std::uint64_t asked_op_seq = 0;  ///< of a ping: the op of which the answer is to say SaidCall
  AckHeader ack;
  HelloBody hello;
  ByeBody bye;
  ProgressCheckBody check;
  AbortReason abort;
};

/// Decodes what says whose a packet is: checks length, version, header CRC and type, and fills
/// out.common, so that nothing dear is done with a stranger's packet.
/// @param address_crc  what the header's CRC was XORed with: wire::address_crc() of the addresses.
/// @return Drop::kNone, or why the packet is to be dropped (then `out` is unspecified).
[[nodiscard]] Drop decode_header(std::span<const std::byte> udp_payload, Packet& out,
                                 std::uint32_t address_crc = 0) noexcept;
/// Decodes the rest of a packet whose header decode_header() took, and which was opened if it was
/// sealed: its tag is cut off. Checks lengths, enumerations
/// and, for every type but those of carries_chunk(), the payload's CRC; fills only the bodies of
/// the packet's type.
[[nodiscard]] Drop decode_body(std::span<const std::byte> udp_payload, Packet& out) noexcept;
/// Both, of a packet that is not sealed; else kMalformed.
[[nodiscard]] Drop decode(std::span<const std::byte> udp_payload, Packet& out) noexcept;
/// The version byte; 0 if there is none.
[[nodiscard]] std::uint8_t version_of(std::span<const std::byte> udp_payload) noexcept;

/// @param ahead  memory that the caller reads next, about as much as the payload: a CRC keeps the
///               core busy and the memory idle, so it is fetched into the cache meanwhile, where
///               the CPU allows. It is not looked at, and may be anything; nullptr: none.
/// @return whether the payload's CRC32C is the one in its header.
[[nodiscard]] bool payload_crc_ok(const Packet& packet, const std::byte* ahead = nullptr) noexcept;

/// @return the CRC32C (Castagnoli, RFC 3720 appendix B.4) of what `crc` is of, followed by `bytes`:
/// for a payload that is summed in pieces while each is in cache. `ahead` as above.
[[nodiscard]] std::uint32_t crc32c_extend(std::uint32_t crc, std::span<const std::byte> bytes,
                                          const std::byte* ahead = nullptr) noexcept;
/// That of `bytes`, as in the integrity field.
[[nodiscard]] inline std::uint32_t crc32c(std::span<const std::byte> bytes,
                                          const std::byte* ahead = nullptr) noexcept {
  return crc32c_extend(0, bytes, ahead);
}

/// Writes the 64 bytes of a data packet's header before a payload of `payload_bytes` bytes whose
/// CRC32C is `payload_crc`. `common.type` does not matter. data.count is not written: the payload's
/// length says it.
void encode_data(std::span<std::byte, kHeaderBytes> out, const CommonHeader& common,
                 const DataHeader& data, std::uint32_t payload_crc) noexcept;

/// The same for a contribution to op data.op_seq, which has entered here. data.hop does not matter.
/// @param received  as in Receipt.
void encode_contribution(std::span<std::byte, kHeaderBytes> out, const CommonHeader& common,
                         const DataHeader& data, std::uint64_t received,
                         std::uint32_t payload_crc) noexcept;

/// The others write header and payload into `out`; the return is the bytes written, 0 if `out` is
/// too small. `common.type` is set by the function.
/// @param asked_op_seq  Packet::asked_op_seq
std::size_t encode_ping(std::span<std::byte> out, CommonHeader common,
                        std::uint64_t asked_op_seq = 0) noexcept;
std::size_t encode_ack(std::span<std::byte> out, CommonHeader common,
                       const AckHeader& ack) noexcept;
/// Padded with zeros to `total_bytes` (header included); to kHeaderBytes + kHelloBodyBytes if that
/// is less.
/// `type` is kHello or kHelloAck.
std::size_t encode_hello(std::span<std::byte> out, PacketType type, CommonHeader common,
                         const HelloBody& body, std::size_t total_bytes) noexcept;
std::size_t encode_abort(std::span<std::byte> out, CommonHeader common,
                         const AbortReason& reason) noexcept;
/// `type` is kBye or kByeAck.
std::size_t encode_bye(std::span<std::byte> out, PacketType type, CommonHeader common,
                       const ByeBody& body) noexcept;
/// `type` is kReceipt or kInquiry.
std::size_t encode_receipt(std::span<std::byte> out, PacketType type, CommonHeader common,
                           const Receipt& receipt) noexcept;
/// The 64 bytes before a piece's payload.
void encode_piece(std::span<std::byte, kHeaderBytes> out, const CommonHeader& common,
                  const OfferHeader& piece, std::uint32_t payload_crc) noexcept;
std::size_t encode_offer(std::span<std::byte> out, CommonHeader common,
                         const OfferHeader& offer) noexcept;
std::size_t encode_pull(std::span<std::byte> out, CommonHeader common,
                        const PullHeader& pull) noexcept;
/// The 64 bytes before a tile piece's payload. What only a call has is not written.
void encode_tile_piece(std::span<std::byte, kHeaderBytes> out, const CommonHeader& common,
                       const TileHeader& piece, std::uint32_t payload_crc) noexcept;
/// What only a piece has is not written; if `not_entered`, nothing that is not said then.
std::size_t encode_tile_call(std::span<std::byte> out, CommonHeader common,
                             const TileHeader& call) noexcept;
std::size_t encode_tile_pull(std::span<std::byte> out, CommonHeader common,
                             const TilePullHeader& pull) noexcept;
std::size_t encode_progress_check(std::span<std::byte> out, CommonHeader common,
                                  const ProgressCheckBody& body) noexcept;

}  // namespace gradwire::wire
